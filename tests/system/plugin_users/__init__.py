"""An application and its tests, as somebody who uses Pulse has them: test_testing_plugin.py runs them elsewhere."""
