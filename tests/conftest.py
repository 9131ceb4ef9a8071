"""What every tier of the tests shares."""

pytest_plugins = ["tests.support.engine_fixture"]
