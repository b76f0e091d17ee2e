#!/bin/sh
# The Python for Spark's processes on this host, from the environment that has both Spark and this project.
# Spark puts its own code first on the path, as zips (and a jar without Python code). Python does not cache the bytecode
# of a zip, so each of ten processes would compile PySpark again, for most of a second. An installed PySpark has the
# same code unpacked.
if [ -f "$SPARK_HOME/__init__.py" ]; then
    path=
    IFS=:
    set -f
    for entry in $PYTHONPATH; do
        case $entry in
            '') ;; # the current folder, which only transforms may search, and last
            */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip | */jars/spark-core_*.jar) ;;
            *) path=$path:$entry ;;
        esac
    done
    export PYTHONPATH="${path#:}"
fi
exec "$MIRROR_JOB_PYTHON" "$@"
