package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/klog/v2"
	utilexec "k8s.io/utils/exec"
)

const (
	// idleTimeout is the kubelet's: an exec that says nothing for that long ends.
	idleTimeout = 4 * time.Hour
	// creationTimeout bounds the wait for the client's streams.
	creationTimeout = 30 * time.Second
)

func protocols() []string {
	return []string{
		remotecommand.StreamProtocolV4Name, remotecommand.StreamProtocolV3Name,
		remotecommand.StreamProtocolV2Name, remotecommand.StreamProtocolV1Name,
	}
}

func (s *Server) serveExec(w http.ResponseWriter, r *http.Request) {
	c, opts, ok := s.streamRequest(w, r)
	if !ok {
		return
	}
	command := r.URL.Query()["command"]
	if len(command) == 0 {
		writeError(w, fmt.Errorf("%w: no command", ErrBadRequest))
		return
	}
	remotecommand.ServeExec(w, r, executor{s, c}, c.pod.Name, string(c.pod.UID), c.name, command, opts,
		idleTimeout, creationTimeout, protocols())
}

// streamRequest resolves the container and the wanted streams, or answers.
func (s *Server) streamRequest(w http.ResponseWriter, r *http.Request) (*container, *remotecommand.Options, bool) {
	c, err := s.container(r.Context(), r)
	if err == nil && !isRunning(c.pod, c.name) {
		err = fmt.Errorf("container %q is not running: %w", c.name, ErrNotFound)
	}
	if err != nil {
		writeError(w, err)
		return nil, nil, false
	}
	opts, err := remotecommand.NewOptions(r)
	if err != nil {
		writeError(w, fmt.Errorf("%w: %w", ErrBadRequest, err))
		return nil, nil, false
	}
	return c, opts, true
}

// executor runs commands in one container.
type executor struct {
	server    *Server
	container *container
}

// ExecInContainer implements remotecommand.Executor.
func (e executor) ExecInContainer(ctx context.Context, _, _, _ string, command []string, in io.Reader, out, errOut io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	e.server.processes.Add(1)
	defer e.server.processes.Done()
	p, err := e.server.command(e.container, command, tty)
	if err != nil {
		return err
	}
	klog.FromContext(ctx).V(2).Info("Exec", "pod", klog.KObj(e.container.pod), "container", e.container.name, "command", command, "tty", tty)
	streams := processStreams{in: in, out: out, err: errOut}
	if tty {
		err = runTerminal(ctx, p, streams, resize)
	} else {
		go ignoreSizes(resize)
		err = runPiped(ctx, p, streams)
	}
	return exitError(err)
}

func ignoreSizes(resize <-chan remotecommand.TerminalSize) {
	if resize == nil {
		return
	}
	for range resize { //nolint:revive // ends with the request
	}
}

// exitError turns the end of a process into what the error stream reports as
// its exit code.
func exitError(err error) error {
	var exit *exitStatus
	if errors.As(err, &exit) {
		return utilexec.CodeExitError{Err: exit, Code: exit.code}
	}
	return err
}

// serveRun is the kubelet's exec without streams: the output is the answer.
func (s *Server) serveRun(w http.ResponseWriter, r *http.Request) {
	c, err := s.container(r.Context(), r)
	if err != nil {
		writeError(w, err)
		return
	}
	s.processes.Add(1)
	defer s.processes.Done()
	p, err := s.command(c, strings.Fields(r.FormValue("cmd")), false)
	if err != nil {
		writeError(w, err)
		return
	}
	var output bytes.Buffer
	if err := runPiped(r.Context(), p, processStreams{both: &output}); err != nil {
		writeError(w, fmt.Errorf("%w: %s", err, output.String()))
		return
	}
	_, _ = w.Write(output.Bytes()) // a client that is gone needs no answer
}
