// One workload in its own process: tensors allocated by cudaMalloc, paused and resumed through torch_memory_saver's C
// interface, with whichever library is preloaded. Prints one line of JSON.
//
//   peers_workload discard|backup <tensors> <bytes each>    with LD_PRELOAD=<library>
//   peers_workload used <tensors> <bytes each>              like discard, after all of the device's pages were used
//   peers_workload neighbour <tensors> <bytes each>         the same, right after `fill` released the device's memory
//   peers_workload copy <bytes>                             without preload: plain copies to pinned memory and back
//   peers_workload fill                                     without preload: that other process, controlled by numbers
//   peers_workload hold <tensors> <bytes each>              without: "ready <pid>"; waits for a line, checks the bytes
//   peers_workload warm <bytes>                             touches host memory, for machines that grow by use
#include <cuda_runtime_api.h>

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

void require(bool held, const std::string& what) {
    if (held) return;
    std::fprintf(stderr, "peers_workload: %s\n", what.c_str());
    std::exit(1);
}

void require(cudaError_t code, const char* what) {
    require(code == cudaSuccess, std::string{what} + ": " + cudaGetErrorString(code));
}

/// Looks up a function of the preloaded library.
template <class Function>
Function* tms(const char* name) {
    void* const found = ::dlsym(RTLD_DEFAULT, name);
    require(found != nullptr, std::string{"no "} + name + ": no library is preloaded");
    return reinterpret_cast<Function*>(found);
}

double used_mib() {
    std::size_t free = 0;
    std::size_t total = 0;
    require(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return static_cast<double>(total - free) / (1 << 20);
}

template <class Act>
double ms(const Act& act) {
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    const auto start = std::chrono::steady_clock::now();
    act();
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return std::chrono::duration<double, std::milli>{std::chrono::steady_clock::now() - start}.count();
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

class Tensors {
public:
    Tensors(std::size_t count, std::size_t bytes) : pointers_(count), bytes_{bytes} {}

    void allocate() {
        for (void*& pointer : pointers_) require(cudaMalloc(&pointer, bytes_), "cudaMalloc");
    }
    void fill() {
        for (std::size_t i = 0; i < pointers_.size(); ++i)
            require(cudaMemset(pointers_[i], value(i), bytes_), "cudaMemset");
        require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
    void free() {
        for (void*& pointer : pointers_) require(cudaFree(pointer), "cudaFree");
    }
    /// Checks both ends of each tensor.
    void check() const {
        const std::size_t part = std::min<std::size_t>(bytes_, 4096);
        std::vector<unsigned char> host(part);
        for (std::size_t i = 0; i < pointers_.size(); ++i) {
            for (const std::size_t offset : {std::size_t{0}, bytes_ - part}) {
                const auto* const from = static_cast<const unsigned char*>(pointers_[i]) + offset;
                require(cudaMemcpy(host.data(), from, part, cudaMemcpyDeviceToHost), "cudaMemcpy");
                require(std::all_of(host.begin(), host.end(), [&](unsigned char b) { return b == value(i); }),
                        "tensor " + std::to_string(i) + " has wrong bytes");
            }
        }
    }

private:
    static int value(std::size_t i) { return static_cast<int>(i % 251) + 1; }

    std::vector<void*> pointers_;
    std::size_t bytes_;
};

/// Allocates all except about `left` bytes of the device, outside regions, and writes to them. Returns the allocated
/// bytes.
std::size_t take_all(std::vector<void*>& taken, std::size_t left) {
    constexpr std::size_t each = std::size_t{1} << 30;
    std::size_t free = 0;
    std::size_t total = 0;
    for (;;) {
        void* block = nullptr;
        require(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
        if (free < left + each || cudaMalloc(&block, each) != cudaSuccess) break;
        taken.push_back(block);
        require(cudaMemset(block, 1, each), "cudaMemset");
    }
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return taken.size() * each;
}
/// Frees everything. Returns the number of bytes.
std::size_t give_all(std::vector<void*>& taken) {
    const std::size_t bytes = taken.size() << 30;
    for (void* const block : taken) require(cudaFree(block), "cudaFree");
    taken.clear();
    return bytes;
}

int pause_and_resume(const std::string& kind, std::size_t count, std::size_t bytes) {
    const bool backup = kind == "backup";
    auto* const pause = tms<int(const char*)>("tms_pause");
    auto* const resume = tms<int(const char*)>("tms_resume");
    require(cudaFree(nullptr), "cudaFree");
    if (kind == "used") { // never-used pages are faster to allocate
        std::vector<void*> all;
        (void)take_all(all, std::size_t{2} << 30);
        (void)give_all(all);
    }
    Tensors tensors{count, bytes};
    const double before = used_mib();
    tms<void(const char*)>("tms_set_current_tag")("peers");
    tms<void(bool)>("tms_set_retain_cpu_backup")(true);
    tms<void(bool)>("tms_set_enable_cpu_backup")(backup);
    tms<void(bool)>("tms_set_interesting_region")(true);
    const double allocate_ms = ms([&] { tensors.allocate(); });
    tms<void(bool)>("tms_set_interesting_region")(false);
    tensors.fill();
    const double taken = used_mib() - before;
    double left = 0;
    double first_pause = 0;
    double first_resume = 0;
    double both = 0;
    std::vector<double> pauses;
    std::vector<double> resumes;
    for (int cycle = 0; cycle < 7; ++cycle) { // an even number after the first: two kinds of pages may alternate
        const double paused = ms([&] { require(pause("peers") == 0, "tms_pause failed"); });
        left = used_mib() - before;
        const double resumed = ms([&] { require(resume("peers") == 0, "tms_resume failed"); });
        if (backup) tensors.check();
        if (cycle == 0) {
            first_pause = paused;
            first_resume = resumed;
            continue;
        }
        pauses.push_back(paused);
        resumes.push_back(resumed);
        both += paused + resumed;
    }
    if (!backup) { // writable again
        tensors.fill();
        tensors.check();
    }
    const double free_ms = ms([&] { tensors.free(); });
    int runtime = 0;
    require(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    std::printf("{\"allocate_ms\": %.4f, \"free_ms\": %.4f, \"device_mib\": %.1f, \"paused_mib\": %.1f, "
                "\"first_pause_ms\": %.4f, "
                "\"first_resume_ms\": %.4f, \"pause_ms\": %.4f, \"resume_ms\": %.4f, \"cycle_ms\": %.4f, \"toolkit\": "
                "\"%d.%d\"}\n",
                allocate_ms, free_ms, taken, left, first_pause, first_resume, median(pauses), median(resumes),
                both / static_cast<double>(pauses.size()), runtime / 1000, runtime % 1000 / 10);
    return 0;
}

/// Another process that allocates all of the device's memory except a part, and frees it.
class Neighbour {
public:
    /// Call before any use of CUDA.
    Neighbour() {
        int orders[2];
        int answers[2];
        require(::pipe(orders) == 0 && ::pipe(answers) == 0, "cannot create pipes");
        const pid_t child = ::fork();
        require(child >= 0, "cannot start a process");
        if (child == 0) {
            (void)::dup2(orders[0], 0);
            (void)::dup2(answers[1], 1);
            for (const int end : {orders[0], orders[1], answers[0], answers[1]}) (void)::close(end);
            (void)::unsetenv("LD_PRELOAD");
            ::execl("/proc/self/exe", "peers_workload", "fill", static_cast<char*>(nullptr));
            ::_exit(1);
        }
        (void)::close(orders[0]);
        (void)::close(answers[1]);
        to_ = ::fdopen(orders[1], "w");
        from_ = ::fdopen(answers[0], "r");
    }
    Neighbour(const Neighbour&) = delete;
    Neighbour& operator=(const Neighbour&) = delete;
    ~Neighbour() {
        (void)std::fclose(to_);
        (void)std::fclose(from_);
        (void)::wait(nullptr);
    }
    /// Allocates all except `left` bytes, or frees everything if 0. Returns the number of bytes.
    std::size_t order(std::size_t left) {
        std::size_t bytes = 0;
        require(std::fprintf(to_, "%zu\n", left) > 0 && std::fflush(to_) == 0 && std::fscanf(from_, "%zu", &bytes) == 1,
                "the other process has ended");
        return bytes;
    }

private:
    std::FILE* to_ = nullptr;
    std::FILE* from_ = nullptr;
};

int fill() {
    std::vector<void*> taken;
    for (std::size_t left = 0; std::scanf("%zu", &left) == 1;) {
        const std::size_t bytes = left != 0 ? take_all(taken, left) : give_all(taken);
        std::printf("%zu\n", bytes);
        std::fflush(stdout);
    }
    return 0;
}

int beside_neighbour(std::size_t count, std::size_t bytes) {
    Neighbour neighbour;
    auto* const pause = tms<int(const char*)>("tms_pause");
    auto* const resume = tms<int(const char*)>("tms_resume");
    require(cudaFree(nullptr), "cudaFree");
    double quiet = 0;
    {
        void* host = nullptr;
        void* device = nullptr;
        require(cudaMallocHost(&host, count * bytes), "cudaMallocHost");
        require(cudaMalloc(&device, count * bytes), "cudaMalloc");
        std::vector<double> all;
        for (int i = 0; i < 4; ++i) {
            const double took =
                ms([&] { require(cudaMemcpy(device, host, count * bytes, cudaMemcpyHostToDevice), "cudaMemcpy"); });
            if (i != 0) all.push_back(took);
        }
        quiet = median(all);
        require(cudaFree(device), "cudaFree");
        require(cudaFreeHost(host), "cudaFreeHost");
    }
    Tensors tensors{count, bytes};
    tms<void(const char*)>("tms_set_current_tag")("peers");
    tms<void(bool)>("tms_set_retain_cpu_backup")(true);
    tms<void(bool)>("tms_set_enable_cpu_backup")(true);
    tms<void(bool)>("tms_set_interesting_region")(true);
    tensors.allocate();
    tms<void(bool)>("tms_set_interesting_region")(false);
    tensors.fill();
    std::vector<double> resumes;
    double given = 0;
    for (int cycle = 0; cycle < 6; ++cycle) {
        require(pause("peers") == 0, "tms_pause failed");
        (void)neighbour.order(count * bytes + (std::size_t{2} << 30));
        given = static_cast<double>(neighbour.order(0));
        const double resumed = ms([&] { require(resume("peers") == 0, "tms_resume failed"); });
        tensors.check();
        if (cycle != 0) resumes.push_back(resumed);
    }
    int runtime = 0;
    require(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    std::printf("{\"resume_ms\": %.4f, \"quiet_copy_ms\": %.4f, \"ratio\": %.4f, \"given_back_mib\": %.1f, "
                "\"toolkit\": \"%d.%d\"}\n",
                median(resumes), quiet, median(resumes) / quiet, given / (1 << 20), runtime / 1000,
                runtime % 1000 / 10);
    return 0;
}

int copy(std::size_t bytes) {
    void* host = nullptr;
    void* device = nullptr;
    require(cudaMallocHost(&host, bytes), "cudaMallocHost");
    require(cudaMalloc(&device, bytes), "cudaMalloc");
    require(cudaMemset(device, 1, bytes), "cudaMemset");
    std::vector<double> out;
    std::vector<double> in;
    for (int round = 0; round < 5; ++round) {
        out.push_back(ms([&] { require(cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy"); }));
        in.push_back(ms([&] { require(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy"); }));
    }
    int runtime = 0;
    require(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    std::printf("{\"out_ms\": %.4f, \"in_ms\": %.4f, \"toolkit\": \"%d.%d\"}\n", median(out), median(in),
                runtime / 1000, runtime % 1000 / 10);
    return 0;
}

int hold(std::size_t count, std::size_t bytes) {
    Tensors tensors{count, bytes};
    tensors.allocate();
    tensors.fill();
    std::printf("ready %d\n", static_cast<int>(::getpid()));
    std::fflush(stdout);
    char line[16];
    require(std::fgets(line, sizeof line, stdin) != nullptr, "standard input ended before a line was read");
    tensors.check();
    std::printf("checked\n");
    return 0;
}

int warm(std::size_t bytes) {
    constexpr std::size_t workers = 8;
    void* const pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    require(pages != MAP_FAILED, "mmap failed");
    (void)::madvise(pages, bytes, MADV_HUGEPAGE);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < workers; ++i) {
        threads.emplace_back([=] { std::memset(static_cast<char*>(pages) + bytes / workers * i, 1, bytes / workers); });
    }
    for (std::thread& thread : threads) thread.join();
    return 0;
}

} // namespace

int main(int count, char** arguments) {
    const std::vector<std::string> words{arguments + 1, arguments + count};
    const auto number = [&](std::size_t i) {
        return static_cast<std::size_t>(std::strtoull(words[i].c_str(), nullptr, 10));
    };
    if (words.size() == 2 && words[0] == "warm") return warm(number(1));
    if (words.size() == 2 && words[0] == "copy") return copy(number(1));
    if (words.size() == 1 && words[0] == "fill") return fill();
    const char* const usage = "discard|used|backup|neighbour|hold <tensors> <bytes each>";
    require(words.size() == 3 && number(1) != 0 && number(2) != 0, usage);
    if (words[0] == "hold") return hold(number(1), number(2));
    if (words[0] == "neighbour") return beside_neighbour(number(1), number(2));
    require(words[0] == "discard" || words[0] == "used" || words[0] == "backup", usage);
    return pause_and_resume(words[0], number(1), number(2));
}
