// The file of the program that compiles what the others only declare.
#define MEMSAVER_COMPILE_HERE
#include "memsaver/compile_once.hpp"
