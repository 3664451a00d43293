#!/bin/sh
# As the public image: MARIADB_ROOT_PASSWORD is the password of root, arguments are options of the server.
set -eu
: "${MARIADB_ROOT_PASSWORD:?is the password of root}"

# At every start, so that a kill during the first one does no harm.
accounts=/tmp/accounts.sql
cat >"$accounts" <<SQL
CREATE USER IF NOT EXISTS 'root'@'%' IDENTIFIED BY '$MARIADB_ROOT_PASSWORD';
GRANT ALL ON *.* TO 'root'@'%' WITH GRANT OPTION;
SQL

exec /opt/mariadb/bin/mariadbd --no-defaults --user=root --lc-messages-dir=/opt/mariadb/share \
  --character-sets-dir=/opt/mariadb/share/charsets --datadir=/var/lib/mysql --socket=/tmp/mariadb.sock \
  --init-file="$accounts" "$@"
