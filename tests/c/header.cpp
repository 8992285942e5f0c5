// The same in C++.
extern "C" {
#include "header.c" // NOLINT(bugprone-suspicious-include): the very same code
}
