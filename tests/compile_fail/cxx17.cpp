// error: memsaver needs C\+\+20
// flags: -std=c++17
// few: and nothing else is said
// Which C++ is needed.
#include <memsaver/memsaver.hpp>

int main() {}
