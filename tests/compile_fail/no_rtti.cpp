// error: memsaver needs run-time type information: compile without -fno-rtti
// flags: -fno-rtti
// few: and nothing else is said
// Reports the required compiler option.
#include <memsaver/memsaver.hpp>

int main() {}
