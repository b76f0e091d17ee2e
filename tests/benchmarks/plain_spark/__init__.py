"""Plain Spark as a copier: a query from Spark's Kafka source to its Kafka sink, without anything of this project."""
