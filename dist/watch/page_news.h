#pragma once
// What one machine's link has to tell the others of its control page, and how much of it each of them has been told:
// rank 0 tells of all ranks, another machine of its own. It knows no sockets and no clock: dist/watch/page_link.h has
// both.
//
// News are numbered. A row has the number of its last one, and who has been told up to number n is told the rows with
// higher ones, so rank 0 keeps one entry for a row and one number for a machine, however many machines there are:
//
//     rows, by their last news:  12: rank 9   15: rank 3   16: rank 70   17: rank 8
//     machine 5, told up to 15, gets the rows of ranks 70 and 8, but those of its own
//
// A row that goes on from call to call makes no news: who goes on is waited for by nobody for long. A row is told
//   - at once where more than its lanes has changed (it begins, ends, or gets a debugger), with all its lanes;
//   - once it has stood still: `Pace::own` as its own machine's link sees it, and, before rank 0 passes it on,
//     `Pace::passed_on` more;
//   - to rank 0 also each `Pace::moving` while it goes on, so that there is something to say of it.
//
// Lanes are read one after the other while a rank works, so what is read may never have been so at one time. Where two
// looks find the same, it was: no lane of a row comes back to what it was. Such an image says that it `stood`, and
// dist/watch/deadlock.h draws conclusions from no other.
//
// Heartbeats are a bit for each rank that has had one since the last time they were told.

#include <array>
#include <chrono>
#include <list>
#include <vector>

#include <shardgrad/dist/os/rank_map.h>
#include <shardgrad/dist/watch/page_wire.h>

namespace shardgrad::dist {

class PageNews {
 public:
  using Clock = std::chrono::steady_clock;
  struct Pace {
    std::chrono::milliseconds own{300}, passed_on{1000}, moving{1000};
  };

  /// How far a machine has been told. A message may end in the middle of what is new; until the end is reached, lanes
  /// are chosen by `all`, for some of a row may have older news than the rows before it.
  struct Told {
    uint64_t all = 0;    ///< all news up to here
    uint64_t up_to = 0;  ///< the rows whose last news is up to here
  };

  PageNews(ControlPage page, const RankMap& map, int rank);
  PageNews(const PageNews&) = delete;

  /// Reads the rows of this machine, and notes whose rows have stood still for long enough.
  void look(Clock::time_point now);
  /// A row of another machine has just been written.
  void heard(const RowNews& news, Clock::time_point now);
  /// Something has been written into rows of other machines here: those whose state has changed are told.
  void look_at_states();
  bool has_more(const Told& told) const { return told.up_to < last_; }
  /// The rows with later news than `told` for a machine, as the body of a message; at most about kRowsInAMessage.
  /// `told` moves on.
  std::string since(Told& told, int machine) const;
  /// Who has had a heartbeat since this was last asked.
  RankBits beats();

 private:
  struct Entry {
    int rank = 0;
    int seen = -1;                              ///< in mine_, of a row of this machine
    bool stood = false;                         ///< as it is now, it was at one time
    bool told = true;                           ///< the last news are what it is now
    bool listed = false;                        ///< in untold_, until the next look
    uint32_t changed = 0;                       ///< lanes that have no news yet, a bit for each
    uint64_t beats = 0;                         ///< when they were last told
    RowImage head;                              ///< at the last news
    uint64_t news = 0;                          ///< the number of the last
    Clock::time_point since{};                  ///< it stands still, or rank 0 has heard so
    Clock::time_point untold_since{};           ///< or the last news
    std::array<uint64_t, Row::kLanes> lanes{};  ///< the numbers of their last news
    std::list<int>::iterator place;             ///< in order_
  };
  /// A row of this machine, as the last look found it.
  struct Seen {
    int entry = 0;
    std::array<LaneImage, Row::kLanes> lanes;
  };
  void look_at(Seen& seen, Clock::time_point now);
  bool read(Seen& seen, uint32_t& changed) const;
  bool is_due(const Entry& entry, Clock::time_point now) const;
  void tell(Entry& entry, const RowImage& head, Clock::time_point now);
  void append_row(std::string& body, const Entry& entry, uint64_t told) const;
  void note_untold(Entry& entry, Clock::time_point now);
  const Row& row(const Entry& entry) const { return page_.row(entry.rank); }

  ControlPage page_;
  const RankMap map_;
  const bool passes_on_;  ///< this is rank 0's
  Pace pace_;
  uint64_t last_ = 0;           ///< the number of the last news
  std::vector<Entry> entries_;  // of the rows that are told
  std::vector<int> index_;      // of a rank's, or -1
  std::vector<Seen> mine_;      // rows of this machine
  std::list<int> order_;        // entries, by their last news
  std::vector<int> untold_;     // entries that have something to tell, in time
};

}  // namespace shardgrad::dist
