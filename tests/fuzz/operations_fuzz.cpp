// What libFuzzer runs.
#include "fuzz/bytes.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <iostream>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    try {
        test::play({data, size});
    } catch (const std::exception& error) {
        std::cerr << "broken: " << error.what() << '\n';
        std::abort(); // signals a finding to the fuzzer
    }
    return 0;
}
