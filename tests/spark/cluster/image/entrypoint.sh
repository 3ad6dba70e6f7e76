#!/bin/bash
# In place of the entrypoint of Spark's image: `driver` submits an application, as on Kubernetes.
# Any other arguments are a command.
set -euo pipefail
if [ "$1" = driver ]; then
  shift
  exec /usr/bin/tini -s -- "$SPARK_HOME/bin/spark-submit" --deploy-mode client "$@"
fi
exec "$@"
