module github.com/hutch-sh/hutch/internal/tools

go 1.26.0
