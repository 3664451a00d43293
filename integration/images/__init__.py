"""Images of Kafka, MySQL and MariaDB made of what this machine has, for where no public
ones can be pulled.
"""
