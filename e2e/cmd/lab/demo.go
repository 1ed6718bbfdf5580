package main

import (
	"context"
	"errors"
)

func demo(context.Context, []string) error     { return errors.New("not built yet") }
func demoDown(context.Context, []string) error { return errors.New("not built yet") }
