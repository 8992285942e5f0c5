// error: memsaver needs exceptions: compile without -fno-exceptions
// flags: -fno-exceptions
// few: and nothing else is said
// Reports the required compiler option.
#include <memsaver/memsaver.hpp>

int main() {}
