#!/bin/sh
# Python for Spark's processes on this host, of the environment that has both Spark and the mirror.
# Spark puts its own code in front, in zips (and a jar with none), and of a zip Python keeps nothing compiled: each of
# ten processes would compile PySpark anew, for most of a second. An installed PySpark has the same code unpacked.
if [ -f "$SPARK_HOME/__init__.py" ]; then
    kept=
    IFS=:
    set -f
    for each in $PYTHONPATH; do
        case $each in
            */python/lib/pyspark.zip | */python/lib/py4j-*-src.zip | */jars/spark-core_*.jar) ;;
            *) kept=$kept:$each ;;
        esac
    done
    export PYTHONPATH="${kept#:}"
fi
exec "$MIRROR_JOB_PYTHON" "$@"
