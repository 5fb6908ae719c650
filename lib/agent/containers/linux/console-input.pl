# Passes standard input on to the socket "attach" of a monitor, in the present directory, until either
# of them ends. Node cannot open a socket of packets (SOCK_SEQPACKET). What the monitor sends is
# dropped, because the monitor must not wait for it; the log has the same.
use strict;
use warnings;
use IO::Handle;
use Socket;

socket(my $monitor, AF_UNIX, SOCK_SEQPACKET, 0) or die "no socket: $!\n";
connect($monitor, pack_sockaddr_un("attach")) or die "the monitor does not answer: $!\n";
$monitor->blocking(0);
syswrite(STDOUT, "attached\n");

my $input = "";
for (;;) {
  my ($readable, $writable) = ("", "");
  vec($readable, fileno($monitor), 1) = 1;
  if ($input eq "") { vec($readable, fileno(STDIN), 1) = 1; }
  else { vec($writable, fileno($monitor), 1) = 1; }
  next if select($readable, $writable, undef, undef) < 1;
  if (vec($readable, fileno($monitor), 1)) {
    my $length = sysread($monitor, my $output, 65_536);
    exit 0 if defined $length ? $length == 0 : !($!{EAGAIN} || $!{EINTR});
  }
  if ($input eq "") {
    next unless vec($readable, fileno(STDIN), 1);
    exit 0 unless sysread(STDIN, $input, 4_096);
  } elsif (vec($writable, fileno($monitor), 1)) {
    my $length = send($monitor, $input, 0);
    if (defined $length) { substr($input, 0, $length) = ""; }
    elsif (!($!{EAGAIN} || $!{EINTR})) { exit 0; }
  }
}
