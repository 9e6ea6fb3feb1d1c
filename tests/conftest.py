"""The plugin without an installation: a clone tests itself."""

pytest_plugins = ["kvledger.tests.kit.plugin"]
