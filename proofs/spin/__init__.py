"""The law in Promela, counted by Spin and by the law."""
