// Package journal keeps the state of a collection in files, so that a process
// that starts anew goes on where the last one ended.
//
//	base-N: a complete state, written beside the work, then renamed
//	log-N : what has changed since, appended as it happens; logs of higher
//	        numbers follow it
//
// A file is a row of frames: length, checksum, kind, payload. The first frame
// says whose file it is; a base ends with a frame of its own, without which it
// does not count. A log may end in the middle of a frame: what is before it
// counts. Frames are never written behind a failed one.
package journal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kinds of frames that the files themselves need.
const (
	header byte = 'H'
	end    byte = 'E'
)

// maxFrame bounds what a damaged length may claim.
const maxFrame = 1 << 30

var (
	// ErrDamaged is wrapped by what cannot be read back.
	ErrDamaged = errors.New("damaged state")
	// ErrForeign is wrapped where the files are of something else.
	ErrForeign = errors.New("state of something else")
)

var table = crc32.MakeTable(crc32.Castagnoli)

// Writer writes the frames of one file or stream.
type Writer struct {
	file *os.File // nil for a stream
	buf  *bufio.Writer
	size int64
	err  error
}

func create(path, identity string, buffer int) (*Writer, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	w := &Writer{file: f, buf: bufio.NewWriterSize(f, buffer)}
	if err := w.Write(header, []byte(identity)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return w, nil
}

// NewWriter writes to a stream; what is buffered is handed over by Flush.
func NewWriter(out io.Writer, identity string) (*Writer, error) {
	w := &Writer{buf: bufio.NewWriterSize(out, 64<<10)}
	if err := w.Write(header, []byte(identity)); err != nil {
		return nil, err
	}
	return w, nil
}

// Reader reads the frames of a stream.
type Reader struct {
	in  io.Reader
	buf []byte
}

// NewReader checks that a stream is of what is expected. With prefix the stream
// may say more than that, which is returned.
func NewReader(in io.Reader, prefix string) (r *Reader, more string, err error) {
	r = &Reader{in: bufio.NewReaderSize(in, 64<<10)}
	kind, payload, err := r.Next()
	if err != nil {
		return nil, "", err
	}
	more, ok := strings.CutPrefix(string(payload), prefix)
	if kind != header || !ok {
		return nil, "", fmt.Errorf("%w: a stream of %.200q", ErrForeign, payload)
	}
	return r, more, nil
}

// Next gives the next frame, which is valid until the one after it is read.
// io.EOF is an end between two frames.
func (r *Reader) Next() (kind byte, payload []byte, err error) {
	kind, r.buf, err = frame(r.in, r.buf)
	return kind, r.buf, err
}

// Write appends a frame. After a failure every further one fails as well.
func (w *Writer) Write(kind byte, payload []byte) error {
	if w.err != nil {
		return w.err
	}
	var head [9]byte
	binary.LittleEndian.PutUint32(head[:], uint32(len(payload))) //nolint:gosec // frames are small
	sum := crc32.Update(crc32.Checksum([]byte{kind}, table), table, payload)
	binary.LittleEndian.PutUint32(head[4:], sum)
	head[8] = kind
	_, err := w.buf.Write(head[:])
	if err == nil {
		_, err = w.buf.Write(payload)
	}
	w.err = err
	w.size += int64(len(head) + len(payload))
	return err
}

// Flush hands everything to the system: it survives the end of the process.
func (w *Writer) Flush() error {
	if w.err == nil {
		w.err = w.buf.Flush()
	}
	return w.err
}

// Fail makes every further write fail, for tests.
func (w *Writer) Fail(err error) { w.err = err }

// Size is the number of bytes written.
func (w *Writer) Size() int64 { return w.size }

// Sync makes what was flushed survive the end of the machine.
func (w *Writer) Sync() error { return w.file.Sync() }

// Close flushes and closes the file.
func (w *Writer) Close() error { return errors.Join(w.Flush(), w.file.Close()) }

// read calls fn with the frames of a file after its first, as far as they are
// whole: a torn end is no error.
func read(path, identity string, fn func(kind byte, payload []byte) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<20)
	var payload []byte
	for first := true; ; first = false {
		var kind byte
		kind, payload, err = frame(in, payload)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, ErrDamaged):
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", path, err)
		}
		if first {
			if kind != header || string(payload) != identity {
				return fmt.Errorf("%w: %s", ErrForeign, path)
			}
			continue
		}
		if err := fn(kind, payload); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
}

// frame reads one frame into a buffer; io.EOF is a clean end.
func frame(in io.Reader, buf []byte) (kind byte, payload []byte, err error) {
	var head [9]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = ErrDamaged
		}
		return 0, buf, err
	}
	size := binary.LittleEndian.Uint32(head[:])
	if size > maxFrame {
		return 0, buf, ErrDamaged
	}
	buf = buf[:0]
	for len(buf) < int(size) { // grows with what is there, not with what is claimed
		n := min(int(size)-len(buf), 1<<20)
		buf = slices.Grow(buf, n)
		got, err := io.ReadFull(in, buf[len(buf):len(buf)+n])
		buf = buf[:len(buf)+got]
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, buf, ErrDamaged
		}
		if err != nil {
			return 0, buf, err
		}
	}
	if crc32.Update(crc32.Checksum(head[8:], table), table, buf) != binary.LittleEndian.Uint32(head[4:]) {
		return 0, buf, ErrDamaged
	}
	return head[8], buf, nil
}

// Dir is the files of one collection.
type Dir struct {
	path     string
	identity string
	next     int // number of the next generation
}

// Open opens a folder, and makes it where it is missing. identity says what the
// files are of and in which form.
func Open(path, identity string) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("folder of the cache: %w", err)
	}
	d := &Dir{path: path, identity: identity, next: 1}
	for _, kind := range []string{"base-", "log-"} {
		numbers, err := d.numbers(kind)
		if err != nil {
			return nil, err
		}
		if len(numbers) > 0 {
			d.next = max(d.next, numbers[len(numbers)-1]+1)
		}
	}
	return d, nil
}

func (d *Dir) numbers(kind string) ([]int, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, fmt.Errorf("folder of the cache: %w", err)
	}
	var numbers []int
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), kind)
		if n, err := strconv.Atoi(rest); ok && err == nil {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

func (d *Dir) file(kind string, n int) string {
	return filepath.Join(d.path, kind+strconv.Itoa(n))
}

// Read calls base with the frames of the last complete state, and then log with
// those of what has changed since. found is false where there is no state.
func (d *Dir) Read(base, log func(kind byte, payload []byte) error) (found bool, err error) {
	bases, err := d.numbers("base-")
	if err != nil || len(bases) == 0 {
		return false, err
	}
	n := bases[len(bases)-1]
	complete := false
	err = read(d.file("base-", n), d.identity, func(kind byte, payload []byte) error {
		if kind == end {
			complete = true
			return nil
		}
		return base(kind, payload)
	})
	if err != nil {
		return true, err
	}
	if !complete {
		return true, fmt.Errorf("%w: %s has no end", ErrDamaged, d.file("base-", n))
	}
	logs, err := d.numbers("log-")
	if err != nil {
		return true, err
	}
	for _, l := range logs {
		if l < n {
			continue
		}
		// A torn end is what a killed process leaves. What follows in a later
		// file was written by one that had read this much.
		if err := read(d.file("log-", l), d.identity, log); err != nil {
			return true, err
		}
	}
	return true, nil
}

// SetAside renames the files, so that somebody can look at them, and gives the
// name of the folder in which they are.
func (d *Dir) SetAside(now time.Time) (string, error) {
	aside := d.path + ".damaged-" + now.UTC().Format("20060102T150405")
	if err := os.Rename(d.path, aside); err != nil {
		return "", fmt.Errorf("set %s aside: %w", d.path, err)
	}
	d.next = 1
	return aside, os.MkdirAll(d.path, 0o700)
}

// Generation is a state that is being written: first its log is begun, then its
// base is written.
type Generation struct {
	dir  *Dir
	n    int
	Base *Writer
	Log  *Writer
}

// Continue begins a further log, as after Read: what was read stays, and an end
// that was torn is not written behind.
func (d *Dir) Continue() (*Writer, error) {
	w, err := create(d.file("log-", d.next), d.identity, 64<<10)
	if err != nil {
		return nil, fmt.Errorf("log of the cache: %w", err)
	}
	d.next++
	return w, nil
}

// Begin begins the next generation.
func (d *Dir) Begin() (*Generation, error) {
	g := &Generation{dir: d, n: d.next}
	var err error
	if g.Log, err = create(d.file("log-", g.n), d.identity, 64<<10); err != nil {
		return nil, fmt.Errorf("log of the cache: %w", err)
	}
	if g.Base, err = create(d.file("base-", g.n)+".new", d.identity, 1<<20); err != nil {
		return nil, errors.Join(fmt.Errorf("state of the cache: %w", err), g.Log.Close(), os.Remove(d.file("log-", g.n)))
	}
	d.next++
	return g, nil
}

// Commit makes the generation the one that counts, and removes those before.
func (g *Generation) Commit() error {
	name := g.dir.file("base-", g.n)
	if err := errors.Join(g.Base.Write(end, nil), g.Base.Flush()); err != nil {
		return errors.Join(fmt.Errorf("state of the cache: %w", err), g.Abort())
	}
	if err := errors.Join(g.Base.Sync(), g.Base.Close()); err != nil {
		return errors.Join(fmt.Errorf("state of the cache: %w", err), os.Remove(name+".new"))
	}
	if err := os.Rename(name+".new", name); err != nil {
		return fmt.Errorf("state of the cache: %w", err)
	}
	if err := syncDir(g.dir.path); err != nil {
		return fmt.Errorf("state of the cache: %w", err)
	}
	return g.dir.removeBefore(g.n)
}

// Abort gives the base up. The log stays: it goes on from the one before.
func (g *Generation) Abort() error {
	return errors.Join(g.Base.file.Close(), os.Remove(g.dir.file("base-", g.n)+".new"))
}

func (d *Dir) removeBefore(n int) error {
	var errs []error
	for _, kind := range []string{"base-", "log-"} {
		numbers, err := d.numbers(kind)
		errs = append(errs, err)
		for _, m := range numbers {
			if m < n {
				errs = append(errs, os.Remove(d.file(kind, m)))
			}
		}
	}
	news, err := filepath.Glob(filepath.Join(d.path, "base-*.new"))
	errs = append(errs, err)
	for _, f := range news {
		if err := os.Remove(f); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
