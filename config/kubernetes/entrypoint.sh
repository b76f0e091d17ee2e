#!/bin/sh
# What the image runs: `mirror` with the arguments, or for Spark on Kubernetes a `driver` or an `executor`, or a program
# that is given by its path.
set -eu
spark=/opt/spark

# Hadoop's login fails for a user without a passwd entry, and the root is read-only.
if ! getent passwd "$(id -u)" > /dev/null; then
    printf 'mirror:x:%s:%s::%s:/bin/sh\n' "$(id -u)" "$(id -g)" "$HOME" > "$HOME/passwd"
    export LD_PRELOAD=libnss_wrapper.so NSS_WRAPPER_PASSWD="$HOME/passwd" NSS_WRAPPER_GROUP=/etc/group
fi

case "${1-}" in
driver)
    # driver OPTIONS... --class org.apache.spark.deploy.PythonRunner SCRIPT ARGUMENTS...
    # As `mirror stream` does, this starts the script, which starts the JVM. So SIGTERM reaches the script, which ends in
    # order; a JVM would end at once.
    shift
    options="--deploy-mode client --conf spark.driver.bindAddress=$SPARK_DRIVER_BIND_ADDRESS"
    options="$options --conf spark.executorEnv.SPARK_DRIVER_POD_IP=$SPARK_DRIVER_BIND_ADDRESS"
    while [ "$1" != --class ]; do
        options="$options $1"
        shift
    done
    script=${3#local://}
    shift 3
    export PYSPARK_SUBMIT_ARGS="$options pyspark-shell"
    exec python "$script" "$@"
    ;;
executor)
    set --
    while option=$(printenv "SPARK_JAVA_OPT_$#"); do
        set -- "$@" "$option"
    done
    exec java "$@" "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
        -cp "$spark/conf:${SPARK_CLASSPATH-}:$spark/jars/*" \
        org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
        --driver-url "$SPARK_DRIVER_URL" --executor-id "$SPARK_EXECUTOR_ID" --cores "$SPARK_EXECUTOR_CORES" \
        --app-id "$SPARK_APPLICATION_ID" --hostname "$SPARK_EXECUTOR_POD_IP" \
        --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" --podName "$SPARK_EXECUTOR_POD_NAME"
    ;;
/*)
    exec "$@"
    ;;
*)
    exec mirror "$@"
    ;;
esac
