// A program that uses the library.
#include <engine.hpp>

int main() {
    using namespace memsaver;
    Engine engine{4_MiB};
    return engine.step_aside() >= 4_MiB && engine.come_back() >= 4_MiB ? 0 : 1;
}
