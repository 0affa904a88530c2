#pragma once
// What pictures have in common: a title, a line of words below it, a legend, and a plot with axes.

#include <span>
#include <string>
#include <vector>

#include <shardgrad/picture/axis.h>
#include <shardgrad/picture/svg.h>

namespace shardgrad::picture {

/// All pictures are so wide. At 400 pixels letters are then 10 pixels high, at 1280 a picture fills the page.
inline constexpr double kWidth = 560;
inline constexpr double kMargin = 12;

/// One entry of a legend.
struct Key {
  Ink ink;
  std::string name;
  const char* dashes = nullptr;
  bool line = false;  ///< a stroke, not a box
};

/// What stands above a picture. Everything below it begins at bottom().
class Head {
 public:
  /// `words`: what the picture says, in a sentence or two, which also go to its description. May be empty.
  Head(const Caption& caption, std::string words, std::vector<Key> keys);
  double bottom() const { return bottom_; }
  void draw(Svg& svg) const;

 private:
  struct Placed {
    Key key;
    Point at;
  };
  std::string title_;
  std::vector<std::string> lines_;
  std::vector<Placed> keys_;
  std::string words_;
  double bottom_;
};

/// A plot's place and axes.
struct Plot {
  Box box;
  Axis x, y;
};
/// Grid lines, ticks and the axes' units; `x_name` and `y_name` say what the axes are ("step", "loss").
void draw_axes(Svg& svg, const Plot& plot, const std::string& x_name, const std::string& y_name);
/// The room that they need below the plot.
inline constexpr double kBelow = 44;
/// The room that an axis's ticks need at its left.
double room_for(const Axis& axis);
/// Words in the middle of a plot in which there is nothing.
void say_empty(Svg& svg, const Box& box, const std::string& why);

/// A moment that a picture over time names: what is right of it, up to the next.
struct Mark {
  double at = 0;
  std::string name;
};
/// A thin line at each mark, with its name where there is room for it.
void draw_marks(Svg& svg, const Plot& plot, std::span<const Mark> marks);

}  // namespace shardgrad::picture
