//! Room `rpn`.
