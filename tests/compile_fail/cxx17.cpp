// error: memsaver needs C\+\+20
// flags: -std=c++17
// few: and nothing else is said
// Reports the required C++ version.
#include <memsaver/memsaver.hpp>

int main() {}
