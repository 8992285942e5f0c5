// A captured graph as its handle sees it: no driver is named.
#pragma once

#include "memsaver/driver/handles.hpp"

#include <functional>
#include <string>

namespace memsaver::inline v0_1 {

/// See Graph for what each method promises.
class GraphBase {
public:
    GraphBase() = default;
    GraphBase(const GraphBase&) = delete;
    GraphBase& operator=(const GraphBase&) = delete;
    virtual ~GraphBase() = default;

    virtual void launch(StreamRef stream) = 0;
    virtual void update(StreamRef stream, const std::function<void()>& body) = 0;

    [[nodiscard]] virtual const std::string& tag() const noexcept = 0;
    [[nodiscard]] virtual int device() const noexcept = 0;
    [[nodiscard]] virtual GraphRef native() const noexcept = 0;
};

} // namespace memsaver::inline v0_1
