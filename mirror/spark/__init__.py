"""Plans, runs and reports copies as Spark jobs; the only package with pyspark.

What Spark does, observed with 3.5 to 4.3: a task runs at least once (``local[2]`` makes one attempt, ``local[2,4]``
four), each in a fresh process. Workers are reused, with their modules and threads, and killed by SIGKILL after a minute
idle: flush before a task returns, and start threads after the fork, never at import. SIGTERM to ``spark-submit`` stops
the JVM, not the script.
"""
