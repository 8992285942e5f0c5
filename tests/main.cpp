// main of all test programs. A program that needs GPUs (MEMSAVER_TEST_GPUS of them) runs on `cuda` by default, the
// others on `host`; --machine= selects another. Queries the driver directly for the number of GPUs: if it used
// memsaver, a memsaver that finds no GPU would skip the tests that detect this.
#define DOCTEST_CONFIG_IMPLEMENT
#include "support/chosen_machine.hpp"
#include "support/sampling.hpp"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>

#ifndef MEMSAVER_TEST_GPUS
#define MEMSAVER_TEST_GPUS 0
#endif

bool gpu_case_skipped = false; // set by a case that cannot run on this machine

namespace {

constexpr const char* names[] = {"host", "nasty", "cuda"};
constexpr auto by_default = MEMSAVER_TEST_GPUS == 0 ? test::MachineKind::host : test::MachineKind::cuda;
test::MachineKind chosen = by_default;

std::atomic<std::uint64_t> failures{0};
std::atomic<std::uint64_t> cases{0};

/// Counts the cases that ran and the checks that failed.
struct Counts : doctest::IReporter {
    explicit Counts(const doctest::ContextOptions& /*options*/) {}
    void report_query(const doctest::QueryData& /*data*/) override {}
    void test_run_start() override {}
    void test_run_end(const doctest::TestRunStats& /*stats*/) override {}
    void test_case_start(const doctest::TestCaseData& /*data*/) override { ++cases; }
    void test_case_reenter(const doctest::TestCaseData& /*data*/) override {}
    void test_case_end(const doctest::CurrentTestCaseStats& /*stats*/) override {}
    void test_case_exception(const doctest::TestCaseException& /*data*/) override { ++failures; }
    void subcase_start(const doctest::SubcaseSignature& /*data*/) override {}
    void subcase_end() override {}
    void log_assert(const doctest::AssertData& data) override { failures += data.m_failed ? 1 : 0; }
    void log_message(const doctest::MessageData& data) override {
        failures += data.m_severity == doctest::assertType::is_warn ? 0 : 1;
    }
    void test_case_skipped(const doctest::TestCaseData& /*data*/) override {}
};
REGISTER_LISTENER("counts", 1, Counts);

/// Returns the number of devices, or 0 and the reason.
int count_gpus(const char*& why) {
    void* driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == nullptr) {
        why = "no NVIDIA driver (libcuda.so.1)";
        return 0;
    }
    auto* init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
    auto* count = reinterpret_cast<int (*)(int*)>(dlsym(driver, "cuDeviceGetCount"));
    int devices = 0;
    if (init == nullptr || count == nullptr || init(0) != 0 || count(&devices) != 0) {
        why = "the NVIDIA driver does not start";
        return 0;
    }
    why = "too few GPUs";
    return devices;
}

/// Sets `chosen`; returns whether the option names a machine.
bool choose(const char* name) {
    for (int i = 0; i < 3; ++i) {
        if (std::strcmp(name, names[i]) == 0) {
            chosen = static_cast<test::MachineKind>(i);
            return true;
        }
    }
    return false;
}

/// Leaves out the cases of other machines.
void select_cases(doctest::Context& context) {
    const char* const name = names[static_cast<int>(chosen)];
    if (chosen != by_default) {
        context.addFilter("test-suite", (doctest::String{"*"} + name + "*").c_str());
        return;
    }
    for (const test::RunsOn others : {test::on_machines, test::on_hosts, test::on_quick}) {
        if (std::strstr(others.machines, name) == nullptr) context.addFilter("test-suite-exclude", others.machines);
    }
}

} // namespace

test::MachineKind test::chosen_machine() noexcept { return chosen; }

std::uint64_t test::failed_checks() noexcept { return failures; }

int main(int argc, char** argv) {
    constexpr char option[] = "--machine=";
    for (int i = 1; i < argc; ++i) {
        if (std::strncmp(argv[i], option, sizeof option - 1) == 0 && !choose(argv[i] + sizeof option - 1)) {
            std::fprintf(stderr, "%s: machines are host, nasty and cuda\n", argv[i]);
            return 2;
        }
    }
    const int wanted = MEMSAVER_TEST_GPUS > 0 ? MEMSAVER_TEST_GPUS : chosen == test::MachineKind::cuda ? 1 : 0;
    const char* why = "";
    if (const int gpus = wanted == 0 ? 0 : count_gpus(why); gpus < wanted) {
        std::printf("skipped: %s, %d wanted, %d found\n", why, wanted, gpus);
        return 77; // ctest's exit code for skipped tests
    }
    doctest::Context context{argc, argv};
    select_cases(context);
    const int failed = context.run();
    if (cases == 0 && !context.shouldExit()) {
        std::printf("no test case ran on %s\n", names[static_cast<int>(chosen)]);
        return 1;
    }
    return failed == 0 && gpu_case_skipped ? 77 : failed;
}
