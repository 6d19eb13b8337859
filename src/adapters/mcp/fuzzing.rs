//! Invariants of the code that reads the output of MCP servers. The functions panic on a violation. Fuzz targets (`tests/fuzz`)
//! and tests with a mutated corpus call them; the service does not.

use futures::executor::block_on;
use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientJsonRpcMessage, ClientRequest, RequestId};

use crate::adapters::mcp::exchange::{Answer, Exchange, Inbound, Listeners, Purpose, Ticket};
use crate::adapters::mcp::transport::lines::{Line, Lines};

/// Maximum size of a message, in bytes.
const LIMIT: usize = 4_096;
/// Maximum length of an error text, in bytes, with hidden characters escaped.
const MAX_ERROR: usize = 20_000;
/// The id of the pending request.
const ID: i64 = 7;

/// Reads output of a server while a call is pending. Checks that no byte is lost between lines, and that the call is
/// answered at most once, with the unchanged result or an error of bounded size.
///
/// # Panics
/// If an invariant is violated.
pub fn exchange(bytes: &[u8]) {
    let exchange = Exchange::default();
    let ticket = waiting(&exchange);
    let mut lines = Lines::new(bytes, LIMIT);
    let (mut read, mut answers) = (0, 0);
    loop {
        let inbound = match block_on(lines.next()) {
            Line::End => break,
            Line::Message(line) => {
                assert!(line.len() <= LIMIT);
                read += line.len() + 1;
                exchange.inbound(&line)
            }
            Line::TooLong { head, tail, length } => {
                assert!(length > LIMIT && head.len() <= LIMIT && tail.len() <= LIMIT);
                read += length + 1;
                exchange.fail_oversized(&head, &tail)
            }
            Line::Endless { length } => {
                assert!(length / Lines::<&[u8]>::ENDLESS > LIMIT);
                return;
            }
        };
        if let Inbound::Answered { id, .. } = inbound {
            assert_eq!(id, RequestId::Number(ID));
            answers += 1;
            match ticket.take() {
                // Unchanged, unless the text was repaired because it is not UTF-8 or not JSON.
                Some(Answer::Result { result, bytes }) => assert!(!result.get().is_empty() && bytes <= LIMIT),
                Some(Answer::Error { message, .. }) => assert!(message.len() <= MAX_ERROR),
                Some(Answer::TooLarge { .. } | Answer::Malformed) => {}
                None => unreachable!("the request was answered with nothing"),
            }
        }
    }
    assert!(answers <= 1 && ticket.take().is_none());
    assert!(read == bytes.len() || read == bytes.len() + 1, "{read} of {} bytes were read", bytes.len());
}

/// The ticket of a call that was sent and is not answered yet.
fn waiting(exchange: &Exchange) -> Ticket {
    let ticket = Ticket::new(Purpose::Call, LIMIT, Listeners::default());
    let mut request = CallToolRequest::new(CallToolRequestParams::new("tool"));
    request.extensions.insert(ticket.clone());
    let mut message = ClientJsonRpcMessage::request(ClientRequest::CallToolRequest(request), RequestId::Number(ID));
    exchange.outbound(&mut message);
    ticket
}
