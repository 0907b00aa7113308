"""Options of the whole suite."""


def pytest_addoption(parser):
    parser.addoption("--update", action="store_true",
                     help="write the expected reports anew instead of comparing with them")
