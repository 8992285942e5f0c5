// The first program: memory that goes back to the device for a while, and comes back at the same address.
#include <memsaver/memsaver.hpp>

#include <iostream>

using namespace memsaver;

int main() {
    with_default_driver([](auto driver) { // a GPU where there is one, host memory elsewhere
        MemorySaver saver{driver};
        Buffer<float> cache;
        {
            auto region = saver.region("cache");
            cache = Buffer<float>{region, 16 << 20};
        }
        std::cout << driver.name() << ": 64 MiB at " << cache.data() << '\n';
        std::cout << saver.pause("cache") << '\n';
        std::cout << saver.resume("cache") << " at " << cache.data() << '\n';
    });
}
