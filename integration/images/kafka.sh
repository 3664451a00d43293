#!/bin/sh
# As the public image: KAFKA_A_B__C___D is the key a.b_c-d of server.properties, CLUSTER_ID the id of the cluster.
set -eu
: "${CLUSTER_ID:?is the id of the cluster}" "${KAFKA_LOG_DIRS:?is the data folder}" "${KAFKA_NODE_ID:?is a number}"

env | awk '
  /^KAFKA_/ && !/^KAFKA_HEAP_OPTS=/ {
    equals = index($0, "=")
    key = tolower(substr($0, 7, equals - 7))
    gsub(/___/, "-", key)
    gsub(/__/, "\001", key)
    gsub(/_/, ".", key)
    gsub(/\001/, "_", key)
    print key "=" substr($0, equals + 1)
  }' >/tmp/server.properties

# At the first start, also at one after a kill in the midst of it.
if [ ! -e "$KAFKA_LOG_DIRS/formatted" ]; then
  mkdir -p "$KAFKA_LOG_DIRS"
  cp -R /opt/formatted/. "$KAFKA_LOG_DIRS/"
  cat >"$KAFKA_LOG_DIRS/meta.properties" <<META
version=1
node.id=$KAFKA_NODE_ID
cluster.id=$CLUSTER_ID
META
  : >"$KAFKA_LOG_DIRS/formatted"
fi

# shellcheck disable=SC2086 # several options
exec /opt/java/bin/java ${KAFKA_HEAP_OPTS:-} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:+ExitOnOutOfMemoryError \
  -cp "/opt/kafka/*" kafka.Kafka /tmp/server.properties
