C SPDX-License-Identifier: Apache-2.0 OR MIT
C Broadcasts, barriers, reductions, gathers, scatters and all-to-alls
C from Fortran with mpif.h: MPI_BOTTOM, MPI_IN_PLACE, a derived type, and
C completion by MPI_WAIT, MPI_TEST and MPI_WAITALL. Prints ok, or what
C is wrong.
      program fixed
      implicit none
      include 'mpif.h'
      integer rank, ranks, last, error, i
      integer request, requests(2), empty, larger
      external larger_of
      integer statuses(MPI_STATUS_SIZE, 2), status(MPI_STATUS_SIZE)
      integer values(100), spread(200), absolute, vector
      integer counts(100), places(100), got_counts(100)
      complex numbers(2), total(2)
      double precision pair(2), least(2)
      integer (kind=MPI_ADDRESS_KIND) address(1)
      logical done, is_so(2), are_so(2)
      call MPI_INIT(error)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, error)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, ranks, error)
C     A plain broadcast from every root.
      do i = 0, ranks - 1
         values(7) = -1
         if (rank .eq. i) values(7) = 1000 + i
         call MPI_BCAST(values, 100, MPI_INTEGER, i, MPI_COMM_WORLD,
     &        error)
         call expect(error .eq. MPI_SUCCESS, 'the error of MPI_BCAST')
         call expect(values(7) .eq. 1000 + i, 'MPI_BCAST')
      end do
      call MPI_BARRIER(MPI_COMM_WORLD, error)
      call expect(error .eq. MPI_SUCCESS, 'the error of MPI_BARRIER')
C     At an absolute address.
      call MPI_GET_ADDRESS(values(3), address(1), error)
      call MPI_TYPE_CREATE_HINDEXED(1, 5, address, MPI_INTEGER,
     &     absolute, error)
      call MPI_TYPE_COMMIT(absolute, error)
      do i = 1, 100
         values(i) = -i
         if (rank .eq. 0) values(i) = i
      end do
      call MPI_BCAST(MPI_BOTTOM, 1, absolute, 0, MPI_COMM_WORLD, error)
      call expect(values(3) .eq. 3 .and. values(7) .eq. 7,
     &     'MPI_BCAST at MPI_BOTTOM')
      if (rank .ne. 0) call expect(values(2) .eq. -2 .and.
     &     values(8) .eq. -8, 'what is beside MPI_BOTTOM')
      call MPI_TYPE_FREE(absolute, error)
C     Every second integer.
      call MPI_TYPE_VECTOR(100, 1, 2, MPI_INTEGER, vector, error)
      call MPI_TYPE_COMMIT(vector, error)
      do i = 1, 200
         spread(i) = -i
         if (rank .eq. ranks - 1) spread(i) = i
      end do
      call MPI_IBCAST(spread, 1, vector, ranks - 1, MPI_COMM_WORLD,
     &     request, error)
      call MPI_WAIT(request, status, error)
      call expect(request .eq. MPI_REQUEST_NULL, 'a null request')
      call expect(spread(199) .eq. 199, 'MPI_IBCAST of a vector')
      if (rank .ne. ranks - 1) call expect(spread(198) .eq. -198,
     &     'what is between the items of a vector')
      call MPI_TYPE_FREE(vector, error)
C     Tests, and two at a time.
      call MPI_IBARRIER(MPI_COMM_WORLD, request, error)
      done = .false.
      do while (.not. done)
         call MPI_TEST(request, done, MPI_STATUS_IGNORE, error)
      end do
      values(1) = -1
      if (rank .eq. 0) values(1) = 5
      call MPI_IBCAST(values, 1, MPI_INTEGER, 0, MPI_COMM_WORLD,
     &     requests(1), error)
      call MPI_IBARRIER(MPI_COMM_WORLD, requests(2), error)
      call MPI_WAITALL(2, requests, statuses, error)
      call expect(values(1) .eq. 5, 'MPI_WAITALL')
C     Sums, in place, too.
      do i = 1, 100
         values(i) = rank + i
      end do
      call MPI_ALLREDUCE(values, spread, 100, MPI_INTEGER, MPI_SUM,
     &     MPI_COMM_WORLD, error)
      call expect(error .eq. MPI_SUCCESS, 'the error of MPI_ALLREDUCE')
      call expect(spread(9) .eq. 9 * ranks + ranks * (ranks - 1) / 2,
     &     'MPI_ALLREDUCE')
      call MPI_ALLREDUCE(MPI_IN_PLACE, values, 100, MPI_INTEGER,
     &     MPI_SUM, MPI_COMM_WORLD, error)
      call expect(values(9) .eq. spread(9), 'MPI_ALLREDUCE in place')
C     At the last rank only.
      last = ranks - 1
      values(1) = rank
      if (rank .eq. last) then
         call MPI_REDUCE(MPI_IN_PLACE, values, 1, MPI_INTEGER, MPI_SUM,
     &        last, MPI_COMM_WORLD, error)
         call expect(values(1) .eq. ranks * last / 2, 'MPI_REDUCE')
      else
         call MPI_REDUCE(values, empty, 1, MPI_INTEGER, MPI_SUM, last,
     &        MPI_COMM_WORLD, error)
         call expect(values(1) .eq. rank, 'what MPI_REDUCE reads')
      end if
C     Of elements that only the MPI can combine.
      is_so(1) = rank .ge. 0
      is_so(2) = rank .eq. last
      call MPI_ALLREDUCE(is_so, are_so, 2, MPI_LOGICAL, MPI_LAND,
     &     MPI_COMM_WORLD, error)
      call expect(are_so(1) .and. .not. are_so(2), 'MPI_LAND')
      call MPI_REDUCE(is_so, are_so, 2, MPI_LOGICAL, MPI_LOR, last,
     &     MPI_COMM_WORLD, error)
      if (rank .eq. last) call expect(are_so(1) .and. are_so(2),
     &     'MPI_LOR')
      numbers(1) = cmplx(rank, 1)
      numbers(2) = cmplx(1, -rank)
      call MPI_ALLREDUCE(numbers, total, 2, MPI_COMPLEX, MPI_SUM,
     &     MPI_COMM_WORLD, error)
      call expect(total(1) .eq. cmplx(ranks * last / 2, ranks) .and.
     &     total(2) .eq. cmplx(ranks, -ranks * last / 2), 'MPI_COMPLEX')
      pair(1) = -rank
      pair(2) = rank
      call MPI_ALLREDUCE(pair, least, 1, MPI_2DOUBLE_PRECISION,
     &     MPI_MINLOC, MPI_COMM_WORLD, error)
      call expect(least(2) .eq. last, 'MPI_MINLOC')
      call MPI_OP_CREATE(larger_of, .true., larger, error)
      values(1) = rank
      call MPI_ALLREDUCE(MPI_IN_PLACE, values, 1, MPI_INTEGER, larger,
     &     MPI_COMM_WORLD, error)
      call expect(values(1) .eq. last, 'an operation of the program')
      call MPI_OP_FREE(larger, error)
C     A block for each rank, in place, too.
      do i = 1, 2 * ranks
         spread(i) = i + rank
      end do
      call MPI_REDUCE_SCATTER_BLOCK(spread, values, 2, MPI_INTEGER,
     &     MPI_SUM, MPI_COMM_WORLD, error)
      call expect(error .eq. MPI_SUCCESS .and. values(2) .eq.
     &     2 * (rank + 1) * ranks + ranks * last / 2, 'a block')
      counts = 2
      call MPI_REDUCE_SCATTER(MPI_IN_PLACE, spread, counts, MPI_INTEGER,
     &     MPI_SUM, MPI_COMM_WORLD, error)
      call expect(error .eq. MPI_SUCCESS .and. spread(2) .eq.
     &     values(2), 'a block in place')
C     Prefix reductions, in place, too.
      values(1) = rank + 1
      call MPI_SCAN(values, spread, 1, MPI_INTEGER, MPI_SUM,
     &     MPI_COMM_WORLD, error)
      call expect(error .eq. MPI_SUCCESS, 'the error of MPI_SCAN')
      call expect(spread(1) .eq. (rank + 1) * (rank + 2) / 2,
     &     'MPI_SCAN')
      call MPI_EXSCAN(MPI_IN_PLACE, values, 1, MPI_INTEGER, MPI_SUM,
     &     MPI_COMM_WORLD, error)
      call expect(error .eq. MPI_SUCCESS, 'the error of MPI_EXSCAN')
      call expect(values(1) .eq. max(1, rank * (rank + 1) / 2),
     &     'MPI_EXSCAN in place')
C     A number of each rank, in place, too.
      call MPI_ALLGATHER(rank, 1, MPI_INTEGER, values, 1, MPI_INTEGER,
     &     MPI_COMM_WORLD, error)
      call expect(error .eq. MPI_SUCCESS, 'the error of MPI_ALLGATHER')
      call expect(values(ranks) .eq. last, 'MPI_ALLGATHER')
      values = -1
      values(rank + 1) = 10 * rank
      call MPI_ALLGATHER(MPI_IN_PLACE, 0, MPI_INTEGER, values, 1,
     &     MPI_INTEGER, MPI_COMM_WORLD, error)
      call expect(values(ranks) .eq. 10 * last, 'one in place')
C     Parts to one rank, from one, to each, and of different lengths.
      do i = 1, ranks
         spread(i) = 100 * rank + i
         values(i) = -1
      end do
      call MPI_GATHER(spread, 1, MPI_INTEGER, values, 1, MPI_INTEGER,
     &     0, MPI_COMM_WORLD, error)
      call expect(error .eq. MPI_SUCCESS, 'the error of MPI_GATHER')
      if (rank .eq. 0) call expect(values(ranks) .eq. 100 * last + 1,
     &     'MPI_GATHER')
      if (rank .eq. 0) call MPI_SCATTER(spread, 1, MPI_INTEGER,
     &     MPI_IN_PLACE, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
      if (rank .ne. 0) call MPI_SCATTER(spread, 1, MPI_INTEGER,
     &     values, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
      if (rank .ne. 0) call expect(values(1) .eq. rank + 1,
     &     'MPI_SCATTER')
      call MPI_ALLTOALL(spread, 1, MPI_INTEGER, values, 1, MPI_INTEGER,
     &     MPI_COMM_WORLD, error)
      call expect(values(ranks) .eq. 100 * last + rank + 1,
     &     'MPI_ALLTOALL')
      do i = 1, ranks
         counts(i) = mod(i, 2)
         places(i) = 2 * (i - 1)
      end do
      call MPI_ALLGATHERV(spread, counts(rank + 1), MPI_INTEGER,
     &     values, counts, places, MPI_INTEGER, MPI_COMM_WORLD, error)
      call expect(values(1) .eq. 1, 'MPI_ALLGATHERV')
C     Of lengths that only two ranks know, in place, too.
      do i = 1, ranks
         counts(i) = i
         places(i) = 10 * (i - 1)
         got_counts(i) = rank + 1
         spread(places(i) + i) = 1000 * rank + i
      end do
      values = -1
      if (rank .eq. 0) call MPI_SCATTERV(spread, counts, places,
     &     MPI_INTEGER, MPI_IN_PLACE, 1, MPI_INTEGER, 0,
     &     MPI_COMM_WORLD, error)
      if (rank .ne. 0) call MPI_SCATTERV(spread, counts, places,
     &     MPI_INTEGER, values, rank + 1, MPI_INTEGER, 0,
     &     MPI_COMM_WORLD, error)
      call expect(error .eq. MPI_SUCCESS, 'the error of MPI_SCATTERV')
      if (rank .ne. 0) call expect(values(rank + 1) .eq. rank + 1 .and.
     &     values(rank + 2) .eq. -1, 'MPI_SCATTERV')
      call MPI_ALLTOALLV(spread, counts, places, MPI_INTEGER, values,
     &     got_counts, places, MPI_INTEGER, MPI_COMM_WORLD, error)
      call expect(error .eq. MPI_SUCCESS, 'the error of MPI_ALLTOALLV')
      call expect(values(places(ranks) + rank + 1) .eq.
     &     1000 * last + rank + 1, 'MPI_ALLTOALLV')
C     The same nonblocking.
      values(1) = rank
      call MPI_IALLREDUCE(values, spread, 1, MPI_INTEGER, MPI_SUM,
     &     MPI_COMM_WORLD, requests(1), error)
      call expect(error .eq. MPI_SUCCESS, 'the error of MPI_IALLREDUCE')
      call MPI_IALLREDUCE(MPI_IN_PLACE, empty, 0, MPI_INTEGER, MPI_SUM,
     &     MPI_COMM_WORLD, requests(2), error)
      call MPI_WAITALL(2, requests, statuses, error)
      call expect(spread(1) .eq. ranks * last / 2, 'MPI_IALLREDUCE')
      values(2) = rank
      call MPI_IALLREDUCE(MPI_IN_PLACE, values(2), 1, MPI_INTEGER,
     &     MPI_SUM, MPI_COMM_WORLD, requests(1), error)
      call MPI_IREDUCE(values, spread(2), 1, MPI_INTEGER, MPI_SUM, last,
     &     MPI_COMM_WORLD, requests(2), error)
      call MPI_WAITALL(2, requests, statuses, error)
      call expect(values(2) .eq. spread(1), 'MPI_IALLREDUCE in place')
      if (rank .eq. last) call expect(spread(2) .eq. spread(1),
     &     'MPI_IREDUCE')
      call MPI_IALLGATHER(rank, 1, MPI_INTEGER, values, 1, MPI_INTEGER,
     &     MPI_COMM_WORLD, request, error)
      call MPI_WAIT(request, status, error)
      call expect(values(ranks) .eq. last, 'MPI_IALLGATHER')
C     Nothing at all, and an error that is returned.
      call MPI_BCAST(empty, 0, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
      call MPI_COMM_SET_ERRHANDLER(MPI_COMM_WORLD, MPI_ERRORS_RETURN,
     &     error)
      call MPI_BCAST(values, 1, MPI_INTEGER, ranks, MPI_COMM_WORLD,
     &     error)
      call expect(error .ne. MPI_SUCCESS, 'a root that does not exist')
      call MPI_BARRIER(MPI_COMM_WORLD, error)
      if (rank .eq. 0) print '(a)', 'fixed: ok'
      call MPI_FINALIZE(error)
      end

      subroutine larger_of(from, into, length, type)
      implicit none
      integer length, type, from(length), into(length), i
      do i = 1, length
         into(i) = max(into(i), from(i))
      end do
      end

      subroutine expect(is_right, what)
      implicit none
      include 'mpif.h'
      logical is_right
      character*(*) what
      integer error
      if (is_right) return
      print '(2a)', 'fixed: wrong: ', what
      call MPI_ABORT(MPI_COMM_WORLD, 1, error)
      end
