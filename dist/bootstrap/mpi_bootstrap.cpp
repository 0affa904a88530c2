#include <algorithm>

#include <shardgrad/core/context.h>
#include <shardgrad/dist/bootstrap/bootstrap.h>
#include <shardgrad/dist/bootstrap/mpi_session.h>

namespace shardgrad::dist {
namespace {

void check_context() {
  if (Context* context = Context::current()) context->check_abort();
}

std::vector<std::string> exchange_over(MpiSession& session, int size, const std::string& mine) {
  std::vector<MPI_Request> request(1);
  std::vector<int> lengths(static_cast<size_t>(size)), begins(static_cast<size_t>(size));
  int length = int(mine.size());
  {
    std::lock_guard lock(session.mutex());
    MPI_Iallgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, session.world(), request.data());
  }
  session.wait(request, check_context, MpiSession::Requests::collective);
  int total = 0;
  for (size_t r = 0; r < lengths.size(); ++r) {
    begins[r] = total;
    total += lengths[r];
  }
  std::string all(size_t(total), '\0');
  {
    std::lock_guard lock(session.mutex());
    MPI_Iallgatherv(mine.data(), length, MPI_BYTE, all.data(), lengths.data(), begins.data(), MPI_BYTE, session.world(),
                    request.data());
  }
  session.wait(request, check_context, MpiSession::Requests::collective);
  std::vector<std::string> result;
  for (int r = 0; r < size; ++r) result.push_back(all.substr(size_t(begins[size_t(r)]), size_t(lengths[size_t(r)])));
  return result;
}

class MpiBootstrap final : public Bootstrap {
 public:
  MpiBootstrap(std::shared_ptr<MpiSession> session, int rank, int size, RankMap map)
      : Bootstrap("mpi", rank, size, std::move(map)), session_(std::move(session)) {}
  std::vector<std::string> exchange(const std::string& mine) override { return exchange_over(*session_, size(), mine); }
  void finish() override {
    session_->finish([this] { barrier(); });
  }
  void abort(int code) override { MPI_Abort(MPI_COMM_WORLD, code); }
  const std::shared_ptr<MpiSession>& session() const { return session_; }

 private:
  std::shared_ptr<MpiSession> session_;
};

}  // namespace

std::string mpi_library() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string name(text, size_t(length));
  return name.substr(0, name.find_first_of(",\n"));
}

std::unique_ptr<Bootstrap> make_mpi_bootstrap() {
  auto session = std::make_shared<MpiSession>();
  int rank = 0, size = 1;
  MPI_Comm_rank(session->world(), &rank);
  MPI_Comm_size(session->world(), &size);
  std::vector<std::string> machines = exchange_over(*session, size, this_machine());
  // Neighbours in number share a machine, however mpirun deals the ranks out: rows of a mesh and parts of a sum do
  // then.
  std::vector<int> order = RankMap(machines).by_node();
  if (!std::ranges::is_sorted(order)) {
    rank = int(std::ranges::find(order, rank) - order.begin());
    session->renumber(rank);
    machines = in_order(std::move(machines), order);
  }
  session->unlink_segments();
  return std::make_unique<MpiBootstrap>(std::move(session), rank, size, RankMap(machines));
}

std::shared_ptr<MpiSession> mpi_session(Bootstrap& bootstrap) {
  auto* mpi = dynamic_cast<MpiBootstrap*>(&bootstrap);
  SG_ASSERT(mpi, "an MPI transport needs an MPI bootstrap");
  return mpi->session();
}

}  // namespace shardgrad::dist
