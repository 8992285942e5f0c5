// A first program: releases the physical pages of a tag and maps new ones at the same address.
#include <memsaver/memsaver.hpp>

#include <iostream>

using namespace memsaver;

int main() {
    with_default_driver([](auto driver) { // a GPU if there is one, otherwise host memory
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
