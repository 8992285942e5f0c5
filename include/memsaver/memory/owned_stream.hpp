// The owner of one stream.
#pragma once

#include "memsaver/driver/concepts.hpp"

#include <optional>
#include <utility>

namespace memsaver::inline v0_1 {

/// Owns a stream, or nothing. Move-only; closes it when it dies, without waiting for its work.
template <Streams D>
class OwnedStream {
public:
    OwnedStream() = default;
    OwnedStream(OwnedStream&& other) noexcept { swap(other); }
    OwnedStream& operator=(OwnedStream&& other) noexcept {
        OwnedStream{std::move(other)}.swap(*this);
        return *this;
    }
    ~OwnedStream() {
        if (driver_) (void)driver_->close_stream(stream_);
    }

    /// Opens a stream into an empty `*this`.
    Status open(const D& driver) noexcept {
        StreamRef stream;
        const Status status = driver.open_stream(stream);
        if (!status.ok()) return status;
        driver_ = driver;
        stream_ = stream;
        return status;
    }

    [[nodiscard]] bool owns() const noexcept { return driver_.has_value(); }
    [[nodiscard]] StreamRef get() const noexcept { return stream_; }

private:
    void swap(OwnedStream& other) noexcept {
        std::swap(driver_, other.driver_);
        std::swap(stream_, other.stream_);
    }

    std::optional<D> driver_;
    StreamRef stream_;
};

} // namespace memsaver::inline v0_1
