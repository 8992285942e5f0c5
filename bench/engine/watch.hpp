// The process that measures a device from outside: for each request on its standard input, it reports how much of the
// device's memory is in use by any process. Uses NVML, which needs no context; otherwise its own context, whose cost is
// then part of every value and cancels in differences. Loads both libraries itself.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdio>
#include <string>

namespace engine {

/// Returns a function of a shared library, or null.
template <class Function>
Function* find_function(void* library, const char* name) {
    return library == nullptr ? nullptr : reinterpret_cast<Function*>(::dlsym(library, name));
}

class Watch {
public:
    explicit Watch(int device) {
        void* const cuda = ::dlopen("libcuda.so.1", RTLD_NOW);
        const auto init = find_function<int(unsigned)>(cuda, "cuInit");
        const auto get = find_function<int(int*, int)>(cuda, "cuDeviceGet");
        const auto bus = find_function<int(char*, int, int)>(cuda, "cuDeviceGetPCIBusId");
        int ordinal = 0;
        if (init == nullptr || get == nullptr || bus == nullptr || init(0) != 0 || get(&ordinal, device) != 0) {
            source_ = "none";
            return;
        }
        char place[64] = {};
        if (bus(place, sizeof place, ordinal) == 0 && open_nvml(place)) {
            source_ = "nvml";
            return;
        }
        const auto retain = find_function<int(void**, int)>(cuda, "cuDevicePrimaryCtxRetain");
        const auto enter = find_function<int(void*)>(cuda, "cuCtxSetCurrent");
        info_ = find_function<int(std::size_t*, std::size_t*)>(cuda, "cuMemGetInfo_v2");
        void* context = nullptr;
        const bool good = retain != nullptr && enter != nullptr && info_ != nullptr && retain(&context, ordinal) == 0 &&
                          enter(context) == 0;
        source_ = good ? "a context of its own" : "none";
    }

    /// Serves requests until its input ends. Each request is one byte, each reply "<used> <total>
    /// ".
    int run() {
        std::printf("%s\n", source_);
        std::fflush(stdout);
        while (std::getchar() != EOF) {
            unsigned long long used = 0;
            unsigned long long total = 0;
            read(used, total);
            std::printf("%llu %llu\n", used, total);
            std::fflush(stdout);
        }
        return 0;
    }

private:
    struct NvmlMemory { // nvmlMemory_t
        unsigned long long total;
        unsigned long long free;
        unsigned long long used;
    };

    bool open_nvml(const char* place) {
        void* const nvml = ::dlopen("libnvidia-ml.so.1", RTLD_NOW);
        const auto init = find_function<int()>(nvml, "nvmlInit_v2");
        const auto find = find_function<int(const char*, void**)>(nvml, "nvmlDeviceGetHandleByPciBusId_v2");
        memory_ = find_function<int(void*, NvmlMemory*)>(nvml, "nvmlDeviceGetMemoryInfo");
        NvmlMemory memory{};
        return init != nullptr && find != nullptr && memory_ != nullptr && init() == 0 && find(place, &handle_) == 0 &&
               memory_(handle_, &memory) == 0;
    }

    void read(unsigned long long& used, unsigned long long& total) {
        if (std::string{source_} == "nvml") {
            NvmlMemory memory{};
            if (memory_(handle_, &memory) != 0) return;
            used = memory.used;
            total = memory.total;
        } else if (info_ != nullptr) {
            std::size_t free_bytes = 0;
            std::size_t total_bytes = 0;
            if (info_(&free_bytes, &total_bytes) != 0) return;
            used = total_bytes - free_bytes;
            total = total_bytes;
        }
    }

    const char* source_ = "none";
    int (*memory_)(void*, NvmlMemory*) = nullptr;
    void* handle_ = nullptr;
    int (*info_)(std::size_t*, std::size_t*) = nullptr;
};

} // namespace engine
