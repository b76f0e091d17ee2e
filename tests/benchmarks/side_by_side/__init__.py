"""This project beside other copiers, on the same data and the same brokers: ``make bench``."""
