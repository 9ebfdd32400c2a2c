__version__ = "2.11.0+fake"
git_version = "0123456789abcdef"
cuda = "13.0"
