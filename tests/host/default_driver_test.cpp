// with_default_driver: a GPU if there is one (here the stub of stub_libcuda.cpp), otherwise host memory.
#include "support/machines.hpp"

namespace host_default_driver_test {
using namespace test;

constexpr const char* no_library = "libmemsaver-has-no-such-driver.so.1";

// The machine that a program was given, and its size.
struct Given {
    bool cuda;
    int device;
    std::size_t bytes;
};

struct Look {
    template <Driver D>
    Given operator()(const D& driver) const {
        DeviceMemory memory;
        check(driver.memory(memory), "look");
        return {std::is_same_v<D, CudaDriver>, driver.device(), memory.total_bytes};
    }
};

TEST_CASE("with_default_driver: host memory if there is no driver, of a sensible size unless told") {
    const Given given = with_default_driver(Look{}, {.cuda_library = no_library, .host_capacity = 64_MiB});
    CHECK_FALSE(given.cuda);
    CHECK(given.bytes == 64_MiB);
    const std::size_t usual = host_capacity_or_default(0);
    CHECK(usual > 0);
    CHECK(usual <= 8_GiB);
    CHECK(usual % 1_MiB == 0);
    CHECK(host_capacity_or_default(3_MiB) == 3_MiB);
    CHECK(with_default_driver(Look{}, {.cuda_library = no_library}).bytes == usual);
}

TEST_CASE("with_default_driver: returns and throws what the program does") {
    static int here = 1;
    int& same = with_default_driver([](auto) -> int& { return here; }, {.cuda_library = no_library});
    CHECK(&same == &here);
    with_default_driver([](auto) { here = 2; }, {.cuda_library = no_library});
    CHECK(here == 2);
    CHECK_THROWS_AS(with_default_driver([](auto) { throw std::logic_error{"mine"}; }, {.cuda_library = no_library}),
                    std::logic_error);
}

TEST_CASE("with_default_driver: the requested device if it can be used; a number that no device has is misuse") {
    const Given given = with_default_driver(Look{}, {.device = 1, .cuda_library = MEMSAVER_STUB_LIBCUDA});
    CHECK(given.cuda);
    CHECK(given.device == 1);
    CHECK_THROWS_AS(with_default_driver(Look{}, {.device = 7, .cuda_library = MEMSAVER_STUB_LIBCUDA}), Misuse);
}
} // namespace host_default_driver_test
