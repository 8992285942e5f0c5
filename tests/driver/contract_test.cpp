// The drivers of the library keep the contract of drivers, and the suite finds drivers that do not.
#include "support/machines.hpp"

namespace driver_contract_test {
using namespace test;

void check_contract(const AnyDriver& driver) {
    const FaultyDriver<AnyDriver> watched{driver};
    for (const std::string& rule : check_driver_contract(watched)) FAIL_CHECK(rule);
    CHECK_MESSAGE(watched.everything_given_back(), watched.leaks());
    for (const std::string& text : watched.violations()) FAIL_CHECK(text);
}

bool breaks(const AnyDriver& driver, const std::string& rule) {
    const std::vector<std::string> broken = check_driver_contract(driver);
    return std::any_of(broken.begin(), broken.end(),
                       [&](const std::string& one) { return one.find(rule) != std::string::npos; });
}

/// Has the feature, but does not say so.
struct Modest : DeviceAround {
    using DeviceAround::DeviceAround;
    [[nodiscard]] Features features() const noexcept override { return {}; }
};

/// Says that it has what it lacks, as if it had misspelled a method.
struct Boastful : DeviceAround {
    using DeviceAround::DeviceAround;
    [[nodiscard]] Features features() const noexcept override {
        Features all = DeviceAround::features();
        all.exports = true;
        return all;
    }
};

/// Another process would get pages, but not these; and for anything.
struct Forgetful : DeviceAround {
    using DeviceAround::DeviceAround;
    Status import_pages(int, PageHandle& pages) noexcept override { return DeviceAround::create(64_KiB, pages); }
};

struct FillsHalf : DeviceAround {
    using DeviceAround::DeviceAround;
    Status fill(Address to, unsigned char byte, std::size_t bytes, StreamRef stream) noexcept override {
        return DeviceAround::fill(to, byte, bytes / 2, stream);
    }
};

TEST_CASE("contract: HostDriver, a nasty one, and machines around it") {
    check_contract(HostDriver{64_MiB});
    check_contract(HostDriver{64_MiB, {.granularity = 64_KiB, .poison = true, .late = true}});
    check_contract(HostDriver{
        64_MiB, {.machine = "contract-" + std::to_string(::getpid()), .granularity = 64_KiB, .poison = true}});
    const HostDriver inside{64_MiB};
    check_contract(AnyDriver{std::make_shared<DeviceAround>(inside)});
    check_contract(FaultyDriver{inside});
    CHECK(inside.violations().empty());
    CHECK(inside.counts() == HostCounts{});
}

TEST_CASE("contract: a machine's features are compared with its calls") {
    const test::HostWith<Modest> modest{64_MiB};
    CHECK(breaks(modest, "begin_capture is supported, but features() does not have it"));
    CHECK(breaks(modest, "lane is supported"));
    CHECK(breaks(test::HostWith<Boastful>{64_MiB}, "create_shared is unsupported, but features() has it"));
    const test::HostWith<Forgetful> forgetful{
        64_MiB, {.machine = "forgetful-" + std::to_string(::getpid()), .granularity = 64_KiB}};
    CHECK(breaks(forgetful, "exported pages keep their bytes, even if they are released meanwhile"));
    CHECK(breaks(forgetful, "what is no descriptor is not imported"));
    CHECK(breaks(test::HostWith<FillsHalf>{64_MiB}, "a fill fills up to its end"));
}

TEST_CASE("contract: a driver whose calls fail gets their names") {
    for (const Call call :
         {Call::reserve, Call::create, Call::map, Call::unmap, Call::record_device, Call::open_file}) {
        const FaultyDriver faulty{HostDriver{64_MiB}};
        faulty.fail({.call = call});
        CHECK_MESSAGE(breaks(faulty, std::string{call_name(call)} + " "), call_name(call));
    }
}
} // namespace driver_contract_test
