// NVTX ranges on a profiler's timeline for memsaver's operations: pause, resume, trim, save, restore, capture. The cost
// without a profiler is negligible. Without NVTX's header only the template is declared.
#pragma once

#include "memsaver/core/macros_off.hpp"

#include "memsaver/core/core.hpp"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#endif

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

namespace memsaver::inline v0_3 {

/// An event sink that turns events into NVTX ranges: `MemorySaver saver{driver, {.events = NvtxRanges{}}};`. Each
/// `began` event opens a range that the matching `ended` closes, such as "pause weights, kv_cache" or "save weights
/// (device 1)". Events of the kinds ignored, retried, trimmed, fell_back and warned become marks. Passes every event on
/// to `next`. Copies share their state. `Api` provides NVTX's calls.
template <class Api>
class BasicNvtxRanges {
public:
    explicit BasicNvtxRanges(EventSink next = {}) : state_{std::make_shared<State>()}, next_{std::move(next)} {}

    void operator()(const Event& event) const {
        switch (event.kind) {
        case EventKind::began: begin(event); break;
        case EventKind::ended: end(event); break;
        case EventKind::progress: break;
        case EventKind::ignored:
        case EventKind::retried:
        case EventKind::trimmed:
        case EventKind::fell_back:
        case EventKind::warned: state_->api.mark(name_of(event).c_str()); break;
        }
        if (next_) next_(event);
    }

private:
    struct State {
        Api api{};
        std::mutex mutex;
        std::multimap<std::string, std::uint64_t> open; // open ranges by name; not nested, because threads and devices
                                                        // overlap
    };

    static std::string name_of(const Event& event) {
        std::string name = event.text;
        if (!event.tag.empty()) name += ' ' + event.tag;
        if (event.device != 0) name += " (device " + std::to_string(event.device) + ')';
        return name;
    }
    void begin(const Event& event) const {
        std::string name = name_of(event);
        const std::lock_guard lock{state_->mutex};
        const auto range = state_->open.emplace(std::move(name), std::uint64_t{0});
        range->second = state_->api.start(range->first.c_str());
    }
    void end(const Event& event) const {
        const std::string name = name_of(event);
        const std::lock_guard lock{state_->mutex};
        const auto range = state_->open.find(name);
        if (range == state_->open.end()) return;
        state_->api.end(range->second);
        state_->open.erase(range);
    }

    std::shared_ptr<State> state_;
    EventSink next_;
};

#if __has_include(<nvtx3/nvToolsExt.h>)

/// The real NVTX, in a domain named "memsaver".
class NvtxApi {
public:
    NvtxApi() : domain_{nvtxDomainCreateA("memsaver")} {}
    NvtxApi& operator=(NvtxApi&&) = delete;
    ~NvtxApi() { nvtxDomainDestroy(domain_); }

    std::uint64_t start(const char* name) const noexcept {
        const nvtxEventAttributes_t attributes = named(name);
        return nvtxDomainRangeStartEx(domain_, &attributes);
    }
    void end(std::uint64_t range) const noexcept { nvtxDomainRangeEnd(domain_, range); }
    void mark(const char* name) const noexcept {
        const nvtxEventAttributes_t attributes = named(name);
        nvtxDomainMarkEx(domain_, &attributes);
    }

private:
    static nvtxEventAttributes_t named(const char* name) noexcept {
        nvtxEventAttributes_t attributes{};
        attributes.version = NVTX_VERSION;
        attributes.size = static_cast<std::uint16_t>(sizeof attributes);
        attributes.messageType = NVTX_MESSAGE_TYPE_ASCII;
        attributes.message.ascii = name;
        return attributes;
    }

    nvtxDomainHandle_t domain_;
};

using NvtxRanges = BasicNvtxRanges<NvtxApi>;

#endif

} // namespace memsaver::inline v0_3

#include "memsaver/core/macros_on.hpp"
