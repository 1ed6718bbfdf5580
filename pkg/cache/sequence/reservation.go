package sequence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Memory is a Reservation that lives as long as its holder: for tests, and
// where somebody else makes sure that numbers grow.
type Memory struct {
	mu   sync.Mutex
	upTo uint64
}

// Load implements Reservation.
func (m *Memory) Load(context.Context) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.upTo, nil
}

// Store implements Reservation.
func (m *Memory) Store(_ context.Context, upTo uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.upTo = max(m.upTo, upTo)
	return nil
}

// File is a Reservation in a file, replaced atomically.
type File string

// Load implements Reservation.
func (f File) Load(context.Context) (uint64, error) {
	b, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read reservation: %w", err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 63)
	if err != nil {
		return 0, fmt.Errorf("reservation %s: %w", string(f), err)
	}
	return n, nil
}

// Store implements Reservation.
func (f File) Store(_ context.Context, upTo uint64) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(string(f)), ".reservation-*")
	if err != nil {
		return fmt.Errorf("write reservation: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write reservation: %w", errors.Join(err, os.Remove(tmp.Name())))
		}
	}()
	if _, err = tmp.WriteString(strconv.FormatUint(upTo, 10) + "\n"); err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), string(f))
}
