// The captures that are open on a host machine, and what breaks them.
// Does not know what is recorded. Not thread safe: its machine's lock guards it.
#pragma once

#include "memsaver/driver/host_status.hpp"
#include "memsaver/driver/host_stream.hpp"

namespace memsaver::inline v0_1 {

class HostCaptures {
public:
    /// Throws std::bad_alloc, having changed nothing.
    void begin(HostStream& stream, CaptureMode mode) {
        auto capture = std::make_shared<HostCapture>();
        capture->origin = &stream;
        capture->mode = mode;
        capture->thread = std::this_thread::get_id();
        capture->streams.push_back(&stream);
        open_.push_back(capture);
        stream.capture = std::move(capture);
    }

    /// Whether this thread may end the capture that began at `stream`.
    static Status may_end(const HostStream& stream) noexcept {
        const HostCapture* const capture = stream.capture.get();
        if (capture == nullptr || capture->origin != &stream) return HostStatus::illegal_state;
        const bool here = capture->mode == CaptureMode::relaxed || capture->thread == std::this_thread::get_id();
        return here ? HostStatus::ok : HostStatus::wrong_thread;
    }

    /// A stream goes away and breaks the capture that it is in, which is answered.
    std::shared_ptr<HostCapture> leave(HostStream& stream) noexcept {
        std::shared_ptr<HostCapture> capture = std::move(stream.capture);
        if (capture == nullptr) return capture;
        std::erase(capture->streams, &stream);
        capture->broken = true;
        if (capture->origin == &stream) end(*capture);
        return capture;
    }

    /// Its streams are free again. The caller holds the capture.
    void end(HostCapture& capture) noexcept {
        capture.open = false;
        std::erase_if(open_, [&](const auto& open) { return open.get() == &capture; });
        for (HostStream* const stream : capture.streams) stream->capture = nullptr;
    }

    /// As marking or waiting for the whole device does. Whether there were any.
    bool break_all() noexcept {
        return break_if([](const HostCapture&) { return true; });
    }

    /// As a call that may wait does on a thread that did not switch to relaxed mode.
    bool break_unrelaxed() noexcept {
        return break_if([here = std::this_thread::get_id()](const HostCapture& capture) {
            return capture.mode == CaptureMode::global ||
                   (capture.mode == CaptureMode::thread_local_ && capture.thread == here);
        });
    }

private:
    template <class F>
    bool break_if(F concerned) noexcept {
        bool any = false;
        for (const auto& capture : open_) {
            if (!concerned(*capture)) continue;
            capture->broken = true;
            any = true;
        }
        return any;
    }

    std::vector<std::shared_ptr<HostCapture>> open_;
};

} // namespace memsaver::inline v0_1
