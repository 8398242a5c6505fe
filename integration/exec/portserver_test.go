package exec_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/hutch-sh/hutch/integration/world"
	"github.com/hutch-sh/hutch/internal/testenv"
)

// bigBody is what the servers of these tests send on /big.
const bigBody = 128 << 20

const nodeServer = `
const http = require('http'), [host, port] = process.argv.slice(1);
const s = http.createServer((q, r) => {
  if (q.url.startsWith('/big')) {
    r.setHeader('Content-Length', 128 << 20);
    let i = 0; const more = () => { while (i < 128) if (!r.write(Buffer.alloc(1 << 20, i++))) { r.once('drain', more); return } r.end() }; more();
  } else r.end('hello from ' + host);
});
const frames = c => {
  let had = Buffer.alloc(0);
  c.on('data', d => {
    had = Buffer.concat([had, d]);
    for (;;) {
      if (had.length < 2) return;
      let n = had[1] & 127, at = 2;
      if (n === 126) { if (had.length < 4) return; n = had.readUInt16BE(2); at = 4 }
      else if (n === 127) { if (had.length < 10) return; n = Number(had.readBigUInt64BE(2)); at = 10 }
      if (had.length < at + 4 + n) return;
      const mask = had.subarray(at, at + 4), data = Buffer.from(had.subarray(at + 4, at + 4 + n));
      for (let i = 0; i < n; i++) data[i] ^= mask[i & 3];
      const head = Buffer.from(had.subarray(0, at)); head[1] &= 127;
      if ((head[0] & 15) === 9) head[0] += 1;
      c.write(Buffer.concat([head, data]));
      if ((head[0] & 15) === 8) return c.end();
      had = had.subarray(at + 4 + n);
    }
  });
};
s.on('upgrade', (q, c, head) => {
  if (q.headers.upgrade === 'websocket') {
    const accept = require('crypto').createHash('sha1').update(q.headers['sec-websocket-key'] + '258EAFA5-E914-47DA-95CA-C5AB0DC85B11').digest('base64');
    c.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ' + accept + '\r\n\r\n');
    return frames(c);
  }
  c.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n'); c.pipe(c);
});
s.listen(+port, host, () => console.log('ready'));
`

func bigSum() string {
	h := sha256.New()
	for i := range bigBody >> 20 {
		h.Write(bytes.Repeat([]byte{byte(i)}, 1<<20))
	}
	return fmt.Sprintf("%d %x", bigBody, h.Sum(nil))
}

// upgraded sends much both ways at once over a connection that has left HTTP.
func upgraded(t testing.TB, network, address string) {
	t.Helper()
	c, err := net.DialTimeout(network, address, world.Patience)
	if err != nil {
		world.Fatal(t, err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(world.Patience))
	fmt.Fprintf(c, "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	in := bufio.NewReader(c)
	for line := ""; line != "\r\n"; {
		if line, err = in.ReadString('\n'); err != nil {
			world.Fatal(t, err)
		}
	}
	const size = 4 << 20
	sent := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	go func() {
		_, _ = c.Write(sent)
		_ = c.(interface{ CloseWrite() error }).CloseWrite()
	}()
	got, err := io.ReadAll(in)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		testenv.Late(t, "%d bytes came back, want %d: %v", len(got), size, err)
	}
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes came back, want %d: %v", len(got), size, err)
	}
}

// websocket talks to an echoing server as RFC 6455 has it: the handshake, short and long messages, a ping, the closing.
func websocket(t testing.TB, address string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, world.Patience)
	if err != nil {
		world.Fatal(t, err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(world.Patience))
	const key = "dGhlIHNhbXBsZSBub25jZQ==" // of the RFC, and its answer
	fmt.Fprintf(c, "GET /chat HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: %s\r\n\r\n", key)
	in := bufio.NewReader(c)
	r, err := http.ReadResponse(in, nil)
	if err != nil || r.StatusCode != 101 || r.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Fatalf("%+v, %v", r, err)
	}
	const text, closing, ping, pong = 1, 8, 9, 10
	for i, m := range []struct {
		op, want byte
		data     []byte
	}{
		{text, text, []byte("hello")}, {ping, pong, []byte("p")}, {text, text, bytes.Repeat([]byte("m"), 1000)},
		{text, text, bytes.Repeat([]byte("0123456789"), 300_000)}, {text, text, nil},
		{closing, closing, []byte{3, 232}},
	} {
		go func() { _, _ = c.Write(frame(m.op, m.data)) }() // the answer comes while it is being sent
		op, data, err := readFrame(in)
		if err != nil || op != m.want || !bytes.Equal(data, m.data) {
			t.Fatalf("message %d of %d bytes: %d, %d bytes, %v", i, len(m.data), op, len(data), err)
		}
	}
	if n, err := in.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("behind the closing: %d, %v", n, err)
	}
}

// frame is a message of a client's.
func frame(op byte, data []byte) []byte {
	b := []byte{0x80 | op}
	switch n := len(data); {
	case n < 126:
		b = append(b, 0x80|byte(n))
	case n < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, 0x80|126), uint16(n))
	default:
		b = binary.BigEndian.AppendUint64(append(b, 0x80|127), uint64(n))
	}
	mask := [4]byte{1, 2, 3, 4}
	b = append(b, mask[:]...)
	for i, x := range data {
		b = append(b, x^mask[i&3])
	}
	return b
}

// readFrame reads a message of a server's.
func readFrame(r *bufio.Reader) (op byte, data []byte, err error) {
	var head [10]byte
	if _, err := io.ReadFull(r, head[:2]); err != nil {
		return 0, nil, err
	}
	n := uint64(head[1] & 127)
	switch n {
	case 126:
		_, err = io.ReadFull(r, head[2:4])
		n = uint64(binary.BigEndian.Uint16(head[2:]))
	case 127:
		_, err = io.ReadFull(r, head[2:10])
		n = binary.BigEndian.Uint64(head[2:])
	}
	if err != nil {
		return 0, nil, err
	}
	data = make([]byte, min(n, 64<<20))
	_, err = io.ReadFull(r, data)
	return head[0] & 15, data, err
}
