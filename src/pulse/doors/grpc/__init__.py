"""The door for producers, workers and operators that speak gRPC."""
