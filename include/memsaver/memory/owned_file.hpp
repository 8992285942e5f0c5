// The owner of one file.
#pragma once

#include "memsaver/driver/concepts.hpp"

#include <optional>
#include <string>
#include <utility>

namespace memsaver::inline v0_1 {

/// Owns an open file without a name, or nothing. Move-only; closes it when it dies, and its bytes are gone.
template <Files D>
class OwnedFile {
public:
    OwnedFile() = default;
    /// Throws what the driver's status stands for.
    OwnedFile(const D& driver, const std::string& directory) {
        if (const Status status = open(driver, directory); !status.ok())
            raise(status, "open a file", "in " + directory);
    }
    OwnedFile(OwnedFile&& other) noexcept { swap(other); }
    OwnedFile& operator=(OwnedFile&& other) noexcept {
        OwnedFile{std::move(other)}.swap(*this);
        return *this;
    }
    ~OwnedFile() {
        if (driver_) (void)driver_->close_file(file_);
    }

    /// Opens a file in `directory` into an empty `*this`.
    Status open(const D& driver, const std::string& directory) noexcept {
        FileRef file;
        const Status status = driver.open_file(directory.c_str(), file);
        if (!status.ok()) return status;
        driver_ = driver;
        file_ = file;
        return status;
    }
    /// Owns nothing then, whatever it answers: a file cannot be closed twice, its number may be another's by then.
    Status close() noexcept {
        if (!driver_) return {};
        const Status status = driver_->close_file(file_);
        driver_.reset();
        return status;
    }

    [[nodiscard]] bool owns() const noexcept { return driver_.has_value(); }
    [[nodiscard]] FileRef get() const noexcept { return file_; }

private:
    void swap(OwnedFile& other) noexcept {
        std::swap(driver_, other.driver_);
        std::swap(file_, other.file_);
    }

    std::optional<D> driver_;
    FileRef file_;
};

} // namespace memsaver::inline v0_1
