#include <memsaver/memsaver.hpp>

#include <iostream>

int main() {
    std::cout << "memsaver " << memsaver::version.major << '.' << memsaver::version.minor << '\n';
    return memsaver::version == memsaver::Version{} ? 1 : 0;
}
