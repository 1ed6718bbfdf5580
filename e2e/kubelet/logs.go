package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/klog/v2"
)

// sharedLog is the file in the server's folder that is part of every log.
const sharedLog = "all.log"

func (c *container) logPath() string { return filepath.Join(c.dir, "container.log") }

func (s *Server) openLog(c *container) []*tailer {
	return []*tailer{{path: filepath.Join(s.opts.Dir, sharedLog)}, {path: c.logPath()}}
}

// tailer reads the whole lines that a file has gained since the last time.
type tailer struct {
	path string
	at   int64
	rest []byte // the beginning of a line that is not complete yet
}

func (t *tailer) read() ([]logLine, error) {
	f, err := os.Open(t.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	if info.Size() < t.at { // begun anew
		t.at, t.rest = 0, nil
	}
	if info.Size() == t.at {
		return nil, nil
	}
	data, err := io.ReadAll(io.NewSectionReader(f, t.at, info.Size()-t.at))
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	t.at += int64(len(data))
	data = append(t.rest, data...)
	end := bytes.LastIndexByte(data, '\n') + 1
	t.rest = bytes.Clone(data[end:])
	var lines []logLine
	for raw := range bytes.Lines(data[:end]) {
		if line, ok := parseLine(raw); ok {
			lines = append(lines, line)
		}
	}
	return lines, nil
}

func readAll(tailers []*tailer) ([]logLine, error) {
	var lines []logLine
	for _, t := range tailers {
		more, err := t.read()
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

func (s *Server) serveLogs(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	opts, err := parseLogOptions(r.URL.Query(), time.Now())
	if err != nil {
		writeError(w, err)
		return
	}
	c, err := s.container(ctx, r)
	if err == nil {
		err = checkLog(c.pod, c.name, opts.previous)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	tailers := s.openLog(c)
	lines, err := readAll(tailers)
	if err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	out := &logWriter{w: w, left: opts.limit, timestamps: opts.timestamps, flush: http.NewResponseController(w).Flush}
	err = out.write(opts.choose(lines))
	if err == nil && opts.follow && !opts.previous {
		err = s.follow(ctx, c, tailers, opts, out)
	}
	if err != nil && !errors.Is(err, errEnough) && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "Logs", "pod", klog.KObj(c.pod), "container", c.name)
	}
}

// errEnough says that the wanted number of bytes was written.
var errEnough = errors.New("enough")

// logWriter renders lines, up to a number of bytes.
type logWriter struct {
	w          io.Writer
	left       int64 // -1 without limit
	timestamps bool
	crlf       bool // a terminal's line break
	flush      func() error
}

func (o *logWriter) write(lines []logLine) error {
	for _, line := range lines {
		data := line.render(o.timestamps)
		if o.crlf && !line.partial {
			data = append(data[:len(data)-1], '\r', '\n')
		}
		enough := o.left >= 0 && int64(len(data)) >= o.left
		if enough {
			data = data[:o.left]
		}
		if _, err := o.w.Write(data); err != nil {
			return err
		}
		if o.left >= 0 {
			o.left -= int64(len(data))
		}
		if enough {
			return errEnough
		}
	}
	if o.flush == nil {
		return nil
	}
	return o.flush()
}

const (
	followInterval = 100 * time.Millisecond
	lifeInterval   = 2 * time.Second
)

// follow writes lines as they come until the container is gone. While somebody
// follows, the container writes a line a second.
func (s *Server) follow(ctx context.Context, c *container, tailers []*tailer, opts logOptions, out *logWriter) error {
	stop, err := s.startPulse(c)
	if err != nil {
		return err
	}
	defer stop()
	opts.tail = -1
	poll := time.NewTicker(followInterval)
	defer poll.Stop()
	life := time.NewTicker(lifeInterval)
	defer life.Stop()
	for gone := false; ; {
		lines, err := readAll(tailers)
		if err != nil {
			return err
		}
		if len(lines) > 0 {
			if err := out.write(opts.choose(lines)); err != nil {
				return err
			}
		}
		if gone {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
		case <-life.C:
			gone = s.isGone(ctx, c)
		}
	}
}

// isGone: an API that does not answer says nothing about the container.
func (s *Server) isGone(ctx context.Context, c *container) bool {
	pod, err := s.opts.Pods.Get(ctx, c.pod.Namespace, c.pod.Name)
	if err != nil {
		return errors.Is(err, ErrNotFound)
	}
	status := containerStatus(pod, c.name)
	return pod.UID != c.pod.UID || status != nil && status.State.Terminated != nil ||
		pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func (s *Server) serveAttach(w http.ResponseWriter, r *http.Request) {
	c, opts, ok := s.streamRequest(w, r)
	if !ok {
		return
	}
	remotecommand.ServeAttach(w, r, executor{s, c}, c.pod.Name, string(c.pod.UID), c.name, opts,
		idleTimeout, creationTimeout, protocols())
}

// AttachContainer implements remotecommand.Attacher: what the container says
// from now on. It listens to nothing.
func (e executor) AttachContainer(ctx context.Context, _, _, _ string, in io.Reader, out, _ io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	go ignoreSizes(resize)
	if in != nil {
		go func() { _, _ = io.Copy(io.Discard, in) }() // ends with the connection
	}
	if out == nil {
		<-ctx.Done()
		return nil
	}
	tailers := e.server.openLog(e.container)
	if _, err := readAll(tailers); err != nil {
		return err
	}
	return e.server.follow(ctx, e.container, tailers, logOptions{tail: -1}, &logWriter{w: out, left: -1, crlf: tty})
}
