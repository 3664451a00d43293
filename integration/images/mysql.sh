#!/bin/sh
# As the public image: MYSQL_ROOT_PASSWORD is the password of root, arguments are options of the server.
set -eu
: "${MYSQL_ROOT_PASSWORD:?is the password of root}"

# At every start, so that a kill during the first one does no harm.
accounts=/tmp/accounts.sql
cat >"$accounts" <<SQL
DROP USER IF EXISTS 'root'@'localhost';
CREATE USER IF NOT EXISTS 'root'@'%' IDENTIFIED WITH mysql_native_password BY '$MYSQL_ROOT_PASSWORD';
GRANT ALL ON *.* TO 'root'@'%' WITH GRANT OPTION;
SQL

exec /opt/mysql/bin/mysqld --no-defaults --user=root --basedir=/opt/mysql --lc-messages-dir=/opt/mysql/share \
  --datadir=/var/lib/mysql --socket=/tmp/mysql.sock --default-authentication-plugin=mysql_native_password \
  --init-file="$accounts" "$@"
